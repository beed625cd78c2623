"""Several proxies on one Redis, without a MongoDB: one store, and what is outdated at one is outdated at all. And the command."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import pytest

from quaestor.admin import AdminToken
from quaestor.proxy.options import ProxyOptions
from quaestor.proxy.server import application, configuration
from quaestor.settings import Settings
from quaestor.testing.servers import HOST
from tests.end_to_end.scripted_origin import answer, scripted_origin, serving
from tests.support import eventually, killed_after

pytestmark = pytest.mark.anyio

TOKEN = "5t0Zk_v1r-0mXbQeYw8LhN2dPfJ7sUaC"
FRESH = answer("200 OK", "Cache-Control: max-age=600", body=b"x")
SHOP = {"host": "shop.example"}
ENDED_WITHIN_S = 120.0


@pytest.mark.usefixtures("patient_redis")
@pytest.mark.parametrize("how", ["purge", "purge-all", "unsafe"])
async def test_an_answer_outdated_at_one_proxy_is_outdated_at_the_other(redis_url: str, prefix: str, how: str) -> None:
    settings = Settings(explicit=True, grid=False, redis_url=redis_url, deployment=prefix, early_refresh=0.0)
    async with AsyncExitStack() as stack:
        origin = await stack.enter_async_context(scripted_origin(lambda _: FRESH))
        clients = []
        for _ in range(2):
            app = application(ProxyOptions(origin=origin.url), settings, token=AdminToken(TOKEN))
            url = await stack.enter_async_context(serving(configuration(app)))
            clients.append(await stack.enter_async_context(httpx.AsyncClient(base_url=url, headers=SHOP)))
        first, other = clients
        await first.get("/a")
        await other.get("/a")
        assert len(origin.asked) == 1, "the second proxy finds what the first has stored"
        assert "hit" in (await other.get("/a")).headers["cache-status"], "and has it in memory now"
        if how == "unsafe":
            await first.post("/a", content=b"y")
        else:
            what = {"all": True} if how == "purge-all" else {"urls": ["http://shop.example/a"]}
            done = await first.post("/quaestor/admin/purge", json=what, headers={"authorization": f"Bearer {TOKEN}"})
            assert done.status_code == 200, done.text
        asked_before = len(origin.asked)

        async def fetched_anew() -> bool:
            await other.get("/a")
            return len(origin.asked) > asked_before

        await eventually(fetched_anew)


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "quaestor.cli", "proxy", *arguments],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


async def last_words(process: subprocess.Popen[str]) -> str:
    """Return the output of a process that has ended."""
    _, output = await anyio.to_thread.run_sync(partial(process.communicate, timeout=ENDED_WITHIN_S))
    return output


async def test_the_command_serves_until_it_is_stopped() -> None:
    async with scripted_origin(lambda _: FRESH) as origin:
        process = start("--origin", origin.url, "--listen", f"{HOST}:0")
        try:
            assert process.stderr is not None
            with killed_after(ENDED_WITHIN_S, process):
                line = await anyio.to_thread.run_sync(process.stderr.readline)
            url = next(word for word in line.split() if word.startswith("http://"))
            async with httpx.AsyncClient(base_url=url) as client:
                await client.get("/")
                assert "hit" in (await client.get("/")).headers["cache-status"]
        finally:
            process.send_signal(signal.SIGTERM)
            output = await last_words(process)
        assert "Traceback" not in output
        assert process.returncode in (0, -signal.SIGTERM)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--origin", "nowhere"], "--origin is a URL"),
        (["--origin", "http://a", "--listen", "nowhere"], "--listen is host:port"),
        (["--origin", "http://a", "--host-header", "mine"], "--host-header is"),
        (["--origin", "http://a", "--certificate", "a.pem"], "belong together"),
        (["--origin", "http://a", "--certificate", "/none", "--key", "/none"], "is no file"),
        (["--origin", "https://a", "--origin-ca", "/none"], "--origin-ca"),
        (["--origin", "http://a", "--redis-url", "nonsense"], "is not a Redis URL"),
        (["--origin", "http://a", "--admin-token-file", "/none"], "cannot be read"),
    ],
)
async def test_a_bad_option_is_one_sentence_and_status_2(arguments: list[str], sentence: str) -> None:
    process = start(*arguments)
    output = await last_words(process)
    assert process.returncode == 2
    assert sentence in output
    assert len(output.splitlines()) == 1


async def test_a_port_that_is_taken_and_a_short_token_are_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        process = start("--origin", "http://a", "--listen", f"{HOST}:{taken.getsockname()[1]}")
        output = await last_words(process)
        assert (process.returncode, "cannot listen" in output) == (2, True)
    token = tmp_path / "token"
    token.write_text("short")
    process = start("--origin", "http://a", "--admin-token-file", str(token))
    output = await last_words(process)
    assert (process.returncode, "at least 24" in output) == (2, True)
