"""The printed Caddyfile around Souin, on the real Caddy: which clients reach the API, and which fields Souin and
clients see.

Debian's Caddy has no Souin, so its module is taken out of the text. Souin's API is a part of Caddy's own API.
One test uses the real API, the others a server that accepts every purge.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from quaestor.cdn_adapters import Delivered, Rejected, Souin, Target, provider_configuration
from quaestor.cdn_adapters.capabilities import TAG
from quaestor.testing.servers import HOST, Server, free_port, running
from tests.end_to_end.origin import Answer, Origin, origin
from tests.support import PATIENCE_S

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("caddy") is None, reason="not on this machine: apt-get install caddy"),
]
TOKEN = "open-sesame-0123"
FOR_BROWSERS = "public, max-age=60, must-revalidate"


def caddy(folder: Path, *, app_port: int, admin_port: int = 0, shown: bool = False) -> Server:
    """A Caddy with the printed text.

    admin_port: port of the server in the place of its own API; 0: its own API.
    shown: whether clients see the fields that Souin receives.
    """
    port = free_port()
    admin = f"localhost:{admin_port or free_port()}"
    values = {
        "folder": str(folder), "token": TOKEN, "purger": HOST, "app_host": HOST, "app_port": str(app_port), "port": str(port),
        "admin": admin,
    }  # fmt: skip
    text = provider_configuration("souin", values)
    text, replaced = re.subn(r"^\tcache \{.*?^\t\}\n", "", text, flags=re.DOTALL | re.MULTILINE)
    assert replaced == text.count("\t\tcache @anonymous\n") == text.count(f"\tadmin {admin}\n") == 1
    text = text.replace("\t\tcache @anonymous\n", "")
    if admin_port:
        text = text.replace(f"\tadmin {admin}\n", "\tadmin off\n")
    if shown:
        text = text.replace("\t\t\t-Souin-Cache-Control\n", "")
    (folder / "Caddyfile").write_text(text)
    url = f"http://{HOST}:{port}"
    arguments = [str(shutil.which("caddy")), "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]
    environment = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    return Server("caddy", arguments, folder, port, url, partial(_listens, port), environment=environment)


def _listens(port: int) -> bool:
    with socket.create_connection((HOST, port), timeout=0.5):
        return True


@pytest.fixture(scope="module")
def behind() -> Iterator[Origin]:
    with origin(free_port()) as there:
        yield there


@pytest.fixture(scope="module")
def api() -> Iterator[Origin]:
    """Takes every purge."""
    with origin(free_port()) as there:
        there.default = Answer(status=204, body="")
        yield there


@pytest.fixture(scope="module")
def front(behind: Origin, api: Origin) -> Iterator[Server]:
    with running(partial(caddy, app_port=behind.port, admin_port=api.port), "caddy") as server:
        yield server


@pytest.fixture
def path(prefix: str) -> str:
    return f"/{prefix}"


async def purge(url: str, token: str = TOKEN) -> object:
    async with Souin(url, token=token, timeout_s=PATIENCE_S).connect() as connection:
        return await connection.send([Target(TAG, "t")])


async def test_the_adapter_reaches_the_api_with_the_token_alone(front: Server, api: Origin) -> None:
    """Which hears of the tags, under its own name, and not of the token."""
    assert await purge(front.url) == Delivered()
    (request,) = api.asked
    assert (request.method, request.target, request.headers["surrogate-key"]) == ("PURGE", "/souin-api/souin", "t")
    assert request.headers["host"] == f"localhost:{api.port}"
    assert request.headers["quaestor-purge-token"] is None
    answer = await purge(front.url, "another")
    assert isinstance(answer, Rejected)
    assert answer.place_wide
    assert len(api.asked) == 1


async def test_without_souin_no_purge_is_acknowledged(behind: Origin) -> None:
    """Caddy's own API is asked, which does not know it; not the application, which may answer anything."""
    with running(partial(caddy, app_port=behind.port), "caddy") as server:
        answer = await purge(server.url)
    assert isinstance(answer, Rejected)
    assert "404" in answer.reason
    assert [request for request in behind.asked if request.method == "PURGE"] == []


@pytest.mark.parametrize("method", ["GET", "PURGE", "POST"])
@pytest.mark.parametrize(
    "target",
    [
        "/souin-api/souin", "/souin-api/souin/flush", "/a/souin-api/souin/", "/a?b=/souin-api/souin/flush", "/souin-api/metrics",
        "http://souin-api/souin", "http://shop.example/souin-api/souin",
    ],
)  # fmt: skip
async def test_nobody_else_reaches_the_api(
    front: Server, behind: Origin, api: Origin, method: str, target: str
) -> None:
    """Wherever an older Souin would look for its path: in a query, behind another path, with its first part as the host."""
    before = len(behind.asked), len(api.asked)
    assert await asked_for(front, method, target) == 403
    assert await asked_for(front, method, target, "quaestor-purge-token: wrong") == 403
    assert (len(behind.asked), len(api.asked)) == before


async def test_a_token_opens_the_api_s_own_path_only(front: Server) -> None:
    """The token does not allow emptying the storage, which may hold another site's answers."""
    for target in ("/souin-api/souin/flush", "/souin-api/souin/GET-http-shop.example-/", "/a"):
        assert await asked_for(front, "PURGE", target, f"quaestor-purge-token: {TOKEN}") == 403


async def asked_for(front: Server, method: str, target: str, field: str = "x-nothing: 1") -> int:
    """The status of the answer to a request with this target, as it is."""

    async def ask() -> int:
        reader, writer = await asyncio.open_connection(HOST, front.port)
        writer.write(
            f"{method} {target} HTTP/1.1\r\nhost: shop.example\r\n{field}\r\ncontent-length: 0\r\n\r\n".encode()
        )
        await writer.drain()
        line = await reader.readline()
        writer.close()
        return int(line.split()[1])

    return await asyncio.wait_for(ask(), PATIENCE_S)


async def test_clients_see_a_lifetime_of_0_and_none_of_souin_s_fields(front: Server, behind: Origin, path: str) -> None:
    """Souin itself sees no lifetime for browsers, which it would obey, and no groups, which it would take for tags."""
    sent = {
        "souin-cache-control": "public",
        "surrogate-key": "q-1",
        "cdn-cache-control": "max-age=60",
        "cache-groups": '"g"',
    }
    behind.answers[path] = Answer({"cache-control": FOR_BROWSERS, **sent})
    async with httpx.AsyncClient(base_url=front.url, timeout=PATIENCE_S, trust_env=False) as web:
        fields = (await web.get(path, headers={"quaestor-purge-token": "x"})).headers
        assert fields["cache-control"] == "public, max-age=0, must-revalidate"
        assert [name for name in sent if name in fields] == []
        assert behind.asked[-1].headers["quaestor-purge-token"] is None
        for said, heard in (
            (f"{FOR_BROWSERS}, no-transform", "public, max-age=0, must-revalidate, no-transform"),
            ("private, no-cache", "private, no-cache"),
            ("no-store", "no-store"),
            ("public, max-age=60", "public, max-age=60"),
        ):
            behind.answers[path] = Answer({"cache-control": said})
            assert (await web.get(path)).headers["cache-control"] == heard


async def test_souin_is_forbidden_to_keep_an_answer_that_varies(behind: Origin, api: Origin, path: str) -> None:
    """The rule runs before the fields for Souin are removed, which here they are not; body and other fields are the
    application's.
    """
    fields = {"souin-cache-control": "public", "expires": "Fri, 01 Jan 2100 00:00:00 GMT", "surrogate-key": "q-1"}
    behind.answers[path] = Answer(
        {"cache-control": FOR_BROWSERS, "vary": "accept-encoding", **fields}, body="varying", status=404
    )
    seen_by_souin = partial(caddy, app_port=behind.port, admin_port=api.port, shown=True)
    with running(seen_by_souin, "caddy") as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S, trust_env=False) as web:
            answer = await web.get(path)
            assert (answer.status_code, answer.text, answer.headers["vary"]) == (404, "varying", "accept-encoding")
            assert "no-store" in answer.headers.get_list("souin-cache-control")
            behind.answers[path] = Answer({"cache-control": FOR_BROWSERS, **fields})
            assert (await web.get(path)).headers.get_list("souin-cache-control") == ["public"]
