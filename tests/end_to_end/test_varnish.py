"""A real varnishd before a real origin: which answers it keeps, which requests it passes on, and its Cache-Status."""

from __future__ import annotations

import asyncio
import socket
from functools import partial

import httpx
import pytest

from quaestor.cdn_adapters import varnish_vcl
from quaestor.testing.servers import HOST, Server, free_port, running, varnish_server
from tests.end_to_end.origin import Answer, Origin
from tests.end_to_end.varnish_site import CACHED, TOKEN, behind, needs_varnish, path, seen, tagged, varnish, web

pytestmark = [pytest.mark.anyio, needs_varnish]
__all__ = ["behind", "path", "varnish", "web"]


async def test_answers_that_cdn_cache_control_allows_are_hits_the_second_time(
    behind: Origin, web: httpx.AsyncClient, path: str
) -> None:
    behind.answers[path] = tagged("t1")
    first, second = await web.get(path), await web.get(path)
    assert (seen(first), seen(second)) == ("miss", "hit")
    assert first.text == second.text
    assert behind.count(path) == 1


async def test_clients_see_neither_tags_nor_the_fields_for_cdns(
    behind: Origin, web: httpx.AsyncClient, path: str
) -> None:
    behind.answers[path] = tagged("t1")
    for _ in range(2):
        answer = await web.get(path)
        assert "xkey" not in answer.headers
        assert "cdn-cache-control" not in answer.headers
        assert not [name for name in answer.headers if name.startswith("quaestor")]
        assert answer.headers["cache-control"] == CACHED["cache-control"]


async def test_clients_with_the_sketch_receive_their_lifetime(
    behind: Origin, web: httpx.AsyncClient, path: str
) -> None:
    behind.answers[path] = tagged("t1", **{"quaestor-ttl": "60;at=1700000000000"})
    answers = [await web.get(path) for _ in range(2)]
    assert [(seen(answer), answer.headers["quaestor-ttl"]) for answer in answers] == [
        ("miss", "60;at=1700000000000"),
        ("hit", "60;at=1700000000000"),
    ]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"cache-control": "public, max-age=600, s-maxage=600"},
        {"expires": "Fri, 01 Jan 2100 00:00:00 GMT"},
        {"cdn-cache-control": "no-store"},
        {"cdn-cache-control": "max-age=600, private"},
        {"cdn-cache-control": "max-age=0"},
        {"cdn-cache-control": "max-age=nonsense"},
        {"cdn-cache-control": "s-max-age=600"},
        {"cdn-cache-control": "max-age=600", "set-cookie": "a=b"},
        {"cdn-cache-control": "max-age=600", "vary": "*"},
        {"cdn-cache-control": "max-age=600", "age": "600"},
    ],
    ids=str,
)
async def test_answers_that_it_does_not_allow_are_fetched_each_time(
    behind: Origin, web: httpx.AsyncClient, path: str, headers: dict[str, str]
) -> None:
    """Nothing else counts: not Cache-Control, not Expires, not Varnish's own defaults."""
    behind.answers[path] = Answer(headers)
    answers = []
    for _ in range(3):
        web.cookies.clear()
        answers.append(await web.get(path))
    assert [seen(answer) for answer in answers] == ["miss"] * 3
    assert behind.count(path) == 3


async def test_answers_that_may_be_kept_again_are_kept_at_once(
    behind: Origin, web: httpx.AsyncClient, path: str
) -> None:
    """An application that bypassed its cache for a moment does not cost the CDN its hits afterwards."""
    behind.answers[path] = Answer({"cache-control": "no-store"})
    assert seen(await web.get(path)) == "miss"
    behind.answers[path] = tagged("t1")
    assert [seen(await web.get(path)) for _ in range(3)] == ["miss", "hit", "hit"]


@pytest.mark.parametrize("headers", [{"authorization": "Basic YTpi"}, {"cookie": "a=b"}], ids=str)
async def test_requests_of_known_users_are_passed_on(
    behind: Origin, web: httpx.AsyncClient, path: str, headers: dict[str, str]
) -> None:
    behind.answers[path] = tagged("t1")
    await web.get(path)
    answer = await web.get(path, headers=headers)
    assert seen(answer) == "pass"
    assert answer.text == f"{path} #2"
    assert seen(await web.get(path)) == "hit"


@pytest.mark.parametrize("requested", ["no-cache", "max-age=0, No-Cache", "no-cache ,max-age=0"])
async def test_a_no_cache_read_reaches_the_application_and_leaves_the_entry(
    behind: Origin, web: httpx.AsyncClient, path: str, requested: str
) -> None:
    """A strong read is answered by the application, and the stored answer stays as it is."""
    behind.answers[path] = tagged("t1")
    await web.get(path)
    strong = await web.get(path, headers={"cache-control": requested})
    assert strong.text == f"{path} #2"
    assert strong.headers["cache-status"] == "Varnish; fwd=request"
    after = await web.get(path)
    assert (seen(after), after.text) == ("hit", f"{path} #1")


@pytest.mark.parametrize("requested", ["max-age=0", "x-no-cache", 'x="no-cache"', "no-cachet"])
async def test_a_revalidation_may_be_answered_from_what_is_kept(
    behind: Origin, web: httpx.AsyncClient, path: str, requested: str
) -> None:
    behind.answers[path] = tagged("t1")
    await web.get(path)
    assert seen(await web.get(path, headers={"cache-control": requested})) == "hit"


@pytest.mark.parametrize("per_s", [0, 1])
async def test_strong_reads_are_limited_by_address(behind: Origin, path: str, per_s: int) -> None:
    """Strong reads of one address beyond the limit are answered like others, and Cache-Status shows it."""
    behind.answers[path] = tagged("t1")
    vcl = varnish_vcl(HOST, behind.port, purge_token=TOKEN, strong_reads_per_s=per_s)
    with running(partial(varnish_server, vcl=vcl), "varnish") as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=10, trust_env=False) as web:
            await web.get(path)
            answers = [await web.get(path, headers={"cache-control": "no-cache"}) for _ in range(20)]
    assert {seen(answer) for answer in answers} == ({"hit", "pass"} if per_s else {"hit"})
    assert all("Varnish; hit" in answer.headers["cache-status"] for answer in answers if seen(answer) == "hit")


async def test_other_methods_are_passed_on_and_head_is_answered_from_the_cache(
    behind: Origin, web: httpx.AsyncClient, path: str
) -> None:
    behind.answers[path] = tagged("t1")
    await web.get(path)
    assert seen(await web.post(path, content=b"x")) == "pass"
    assert seen(await web.head(path)) == "hit"
    assert [request.method for request in behind.asked if request.target == path] == ["GET", "POST"]


async def test_variants_are_kept_apart(behind: Origin, web: httpx.AsyncClient, path: str) -> None:
    behind.answers[path] = tagged("t1", vary="accept-language")
    for language in ("de", "en"):
        headers = {"accept-language": language}
        assert [seen(await web.get(path, headers=headers)) for _ in range(2)] == ["miss", "hit"]


async def test_age_counts_from_when_the_application_stored_it(
    behind: Origin, web: httpx.AsyncClient, path: str
) -> None:
    """Lifetimes for CDN and browser both count from the application's storage.

    An answer 100 s old at Varnish's fetch is at least that old for the browser, and lives 100 s less in Varnish.
    """
    behind.answers[path] = tagged("t1", age="100", **{"cache-control": "public, max-age=600"})
    await web.get(path)
    hit = await web.get(path)
    assert 100 <= int(hit.headers["age"]) < 130
    assert "age" not in hit.headers["cache-control"].replace("max-age", "")
    left_s = int(hit.headers["cache-status"].rpartition("ttl=")[2])
    assert 600 - 130 <= left_s <= 500


async def test_nothing_is_served_after_its_lifetime(behind: Origin, web: httpx.AsyncClient, path: str) -> None:
    """No grace: the first request after the end waits for the application."""
    behind.answers[path] = tagged("t1", **{"cdn-cache-control": "max-age=1"})
    first = await web.get(path)
    deadline = asyncio.get_running_loop().time() + 20
    while (answer := await web.get(path)).text == first.text:
        assert int(answer.headers["age"]) <= 1
        assert asyncio.get_running_loop().time() < deadline
    assert seen(answer) == "miss"


async def test_cache_status_says_what_every_cache_did(behind: Origin, web: httpx.AsyncClient, path: str) -> None:
    """RFC 9211: the origin's entry first, Varnish's after it."""
    behind.answers[path] = tagged("t1", **{"cache-status": "Quaestor; fwd=uri-miss; stored"})
    first, second = await web.get(path), await web.get(path)
    assert first.headers["cache-status"] == "Quaestor; fwd=uri-miss; stored, Varnish; fwd=miss; stored"
    assert second.headers["cache-status"].startswith("Quaestor; fwd=uri-miss; stored, Varnish; hit; ttl=")
    passed = await web.get(path, headers={"cookie": "a=b"})
    assert passed.headers["cache-status"].endswith(", Varnish; fwd=bypass")
    posted = await web.post(path)
    assert posted.headers["cache-status"].endswith(", Varnish; fwd=method")
    behind.answers[path + "x"] = Answer()
    assert (await web.get(path + "x")).headers["cache-status"] == "Varnish; fwd=miss"


async def test_varnish_answers_304_to_a_client_that_has_the_answer(
    behind: Origin, web: httpx.AsyncClient, path: str
) -> None:
    """A revalidation costs the application nothing while the object is in Varnish."""
    behind.answers[path] = tagged("t1", etag='"v1"')
    await web.get(path)
    answer = await web.get(path, headers={"if-none-match": '"v1"', "cache-control": "max-age=0, no-cache"})
    assert answer.status_code == 304
    assert answer.headers["etag"] == '"v1"'
    assert "xkey" not in answer.headers
    assert behind.count(path) == 1


async def test_concurrent_misses_are_one_fetch(behind: Origin, web: httpx.AsyncClient, path: str) -> None:
    behind.answers[path] = tagged("t1")
    with behind.held(path) as came:
        waiting = [asyncio.create_task(web.get(path)) for _ in range(10)]
        await asyncio.to_thread(came.wait, 10)
    answers = await asyncio.gather(*waiting)
    assert {answer.text for answer in answers} == {f"{path} #1"}
    assert behind.count(path) == 1


def test_a_websocket_goes_through(varnish: Server) -> None:
    with socket.create_connection((HOST, varnish.port), timeout=10) as client:
        client.sendall(
            b"GET /ws HTTP/1.1\r\nHost: app\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        stream = client.makefile("rb")
        assert stream.readline() == b"HTTP/1.1 101 Switching Protocols\r\n"
        headers = iter(stream.readline, b"\r\n")
        assert b"sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n" in [line.lower() for line in headers]
        client.sendall(b"\x81\x85frame")
        assert stream.read(7) == b"\x81\x85frame"
        stream.close()


async def test_an_application_that_is_down_is_a_503_that_nobody_keeps() -> None:
    vcl = varnish_vcl(HOST, free_port(), purge_token=TOKEN)
    with running(partial(varnish_server, vcl=vcl), "varnish-alone") as alone:
        async with httpx.AsyncClient(base_url=alone.url, trust_env=False) as web:
            answer = await web.get("/")
    assert answer.status_code == 503
    assert answer.headers["cache-control"] == "no-store"
