"""The Varnish adapter and its VCL against a real varnishd and a real origin."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from functools import partial

import httpx
import pytest

from cdn_adapters import VarnishAdapter, varnish_vcl
from cdn_adapters.batching import BatchLimits, Outcome, PurgeEvent
from quaestor.demo.servers import HOST, Server, free_port, running, varnish_binary, varnish_server
from quaestor.errors import CdnError, ConfigurationError
from tests.end_to_end.origin import Answer, Origin, origin

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        varnish_binary() is None, reason="no varnishd on this machine: apt-get install varnish varnish-modules"
    ),
]

TOKEN = "open-sesame-0123"
CACHED = {"cdn-cache-control": "max-age=600", "cache-control": "public, max-age=0, must-revalidate"}


@pytest.fixture(scope="module")
def behind() -> Iterator[Origin]:
    with origin(free_port()) as there:
        yield there


@pytest.fixture(scope="module")
def varnish(behind: Origin) -> Iterator[Server]:
    vcl = varnish_vcl(HOST, behind.port, purge_token=TOKEN)
    with running(partial(varnish_server, vcl=vcl), "varnish") as server:
        yield server


@pytest.fixture
async def web(varnish: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=varnish.url, timeout=10, trust_env=False) as client:
        yield client


@pytest.fixture
async def adapter(varnish: Server) -> AsyncIterator[VarnishAdapter]:
    adapter = VarnishAdapter(varnish.url, token=TOKEN)
    yield adapter
    await adapter.aclose()


@pytest.fixture
def path(prefix: str) -> str:
    """A path of this test's own."""
    return f"/{prefix}"


def seen(response: httpx.Response) -> str:
    return response.headers["x-varnish-cache"]


def tagged(*tags: str, **headers: str) -> Answer:
    fields = VarnishAdapter("http://unused").response_headers(tags)
    return Answer(CACHED | {name.decode(): value.decode() for name, value in fields} | headers)


# What is kept


async def test_what_cdn_cache_control_allows_is_a_hit_the_second_time(
    behind: Origin, web: httpx.AsyncClient, path: str
) -> None:
    behind.answers[path] = tagged("t1")
    first, second = await web.get(path), await web.get(path)
    assert (seen(first), seen(second)) == ("miss", "hit")
    assert first.text == second.text
    assert behind.count(path) == 1


async def test_clients_see_neither_tags_nor_what_cdns_are_told(
    behind: Origin, web: httpx.AsyncClient, path: str
) -> None:
    behind.answers[path] = tagged("t1")
    for _ in range(2):
        answer = await web.get(path)
        assert "xkey" not in answer.headers
        assert "cdn-cache-control" not in answer.headers
        assert not [name for name in answer.headers if name.startswith("quaestor")]
        assert answer.headers["cache-control"] == CACHED["cache-control"]


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
async def test_what_it_does_not_allow_is_fetched_each_time(
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


async def test_what_may_be_kept_again_is_kept_at_once(behind: Origin, web: httpx.AsyncClient, path: str) -> None:
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


async def test_other_methods_are_passed_on_and_head_is_answered_from_the_cache(
    behind: Origin, web: httpx.AsyncClient, path: str
) -> None:
    behind.answers[path] = tagged("t1")
    await web.get(path)
    assert seen(await web.post(path, content=b"x")) == "pass"
    assert seen(await web.head(path)) == "hit"
    assert [asked.method for asked in behind.asked if asked.target == path] == ["GET", "POST"]


async def test_variants_are_kept_apart(behind: Origin, web: httpx.AsyncClient, path: str) -> None:
    behind.answers[path] = tagged("t1", vary="accept-language")
    for language in ("de", "en"):
        headers = {"accept-language": language}
        assert [seen(await web.get(path, headers=headers)) for _ in range(2)] == ["miss", "hit"]


async def test_age_counts_from_when_the_application_stored_it(
    behind: Origin, web: httpx.AsyncClient, path: str
) -> None:
    """Lifetimes for CDN and browser both count from there: what was 100 s old when Varnish fetched it is at least that old
    for the browser, and lives 100 s less in Varnish."""
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


async def test_a_client_that_has_it_already_is_told_so_by_varnish(
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


# Purging


async def test_a_purge_by_tag_removes_what_has_the_tag_and_nothing_else(
    behind: Origin, web: httpx.AsyncClient, adapter: VarnishAdapter, path: str
) -> None:
    for name in "abc":
        behind.answers[path + name] = tagged(f"{path}-own-{name}", f"{path}-{'ab' if name in 'ab' else 'c'}")
        await web.get(path + name)
    await adapter.purge(tags=[f"{path}-ab"], urls=[])
    assert [seen(await web.get(path + name)) for name in "abc"] == ["miss", "miss", "hit"]


async def test_a_purge_is_effective_when_it_returns(
    behind: Origin, web: httpx.AsyncClient, adapter: VarnishAdapter, path: str
) -> None:
    """A hundred writes, each followed by its purge: the next answer is never the old one."""
    for version in range(100):
        behind.answers[path] = tagged(f"{path}-{version}")
        behind.answers[path].body = str(version)
        if version:
            await adapter.purge(tags=[f"{path}-{version - 1}"], urls=[])
        assert (await web.get(path)).text == str(version)
        assert seen(await web.get(path)) == "hit"


async def test_with_tags_and_urls_the_tags_decide(
    behind: Origin, web: httpx.AsyncClient, adapter: VarnishAdapter, varnish: Server, path: str
) -> None:
    """The copy that has replaced the purged one already, under the same URL, stays."""
    behind.answers[path] = tagged(f"{path}-new")
    await web.get(path)
    await adapter.purge(tags=[f"{path}-old"], urls=[varnish.url + path])
    assert seen(await web.get(path)) == "hit"


async def test_tags_of_any_spelling(behind: Origin, web: httpx.AsyncClient, adapter: VarnishAdapter, path: str) -> None:
    """Blanks and commas would be two tags, other bytes no header at all."""
    for tag in ("two words", "a,b", "é/北京", "100%", 'q-"x"', "line\nbreak", "x" * 500):
        behind.answers[path] = tagged(path + tag)
        await web.get(path)
        await adapter.purge(tags=[path + tag[:1]], urls=[])
        assert seen(await web.get(path)) == "hit", tag
        await adapter.purge(tags=[path + tag], urls=[])
        assert seen(await web.get(path)) == "miss", tag
        await adapter.purge(tags=[path + tag], urls=[])


async def test_hundreds_of_objects_under_one_tag_and_hundreds_of_tags_at_once(
    behind: Origin, web: httpx.AsyncClient, adapter: VarnishAdapter, path: str
) -> None:
    behind.default = tagged()
    targets = [f"{path}/{i}" for i in range(400)]
    for i, target in enumerate(targets):
        behind.answers[target] = tagged(f"{path}-all", f"{path}-{'x' * 30}-{i}")

    async def get_all() -> set[str]:
        gate = asyncio.Semaphore(16)

        async def get(target: str) -> str:
            async with gate:
                return seen(await web.get(target))

        return set(await asyncio.gather(*map(get, targets)))

    assert await get_all() == {"miss"}
    assert await get_all() == {"hit"}
    await adapter.purge(tags=[f"{path}-all"], urls=[])
    assert await get_all() == {"miss"}
    await adapter.purge(tags=[f"{path}-{'x' * 30}-{i}" for i in range(400)], urls=[])
    assert await get_all() == {"miss"}


@pytest.mark.parametrize(
    "target", ["", "?a=1&b=2", "?b=2&a=1", "?q=%C3%A9%20x", "?q=a|b^[1]{2}", "/%7Euser/a%2Fb", "?", ";p=1?x"]
)
async def test_a_purge_by_url_removes_that_url_and_nothing_else(
    behind: Origin, web: httpx.AsyncClient, varnish: Server, path: str, target: str
) -> None:
    """As it was spelled by the client that asked for it: Varnish compares bytes."""
    adapter = VarnishAdapter(varnish.url, token=TOKEN, tags=False)
    behind.default = Answer(CACHED)
    raw = {"extensions": {"target": (path + target).encode()}}
    for _ in range(2):
        await web.send(web.build_request("GET", "/", **raw))
    await web.get(path + "/other")
    assert behind.count(path + target) == 1
    await adapter.purge(tags=["ignored"], urls=[varnish.url + path + target])
    again = await web.send(web.build_request("GET", "/", **raw))
    assert seen(again) == "miss"
    assert seen(await web.get(path + "/other")) == "hit"
    assert adapter.response_headers(["t"]) == []
    await adapter.aclose()


async def test_a_purge_by_url_removes_every_variant_under_that_host_alone(
    behind: Origin, web: httpx.AsyncClient, adapter: VarnishAdapter, path: str
) -> None:
    behind.answers[path] = tagged("t1", vary="accept-language")
    requests = [
        {"host": host, "accept-language": language} for host in ("a.example", "B.example:80") for language in "xyz"
    ]
    for headers in requests:
        await web.get(path, headers=headers)
    await adapter.purge(tags=[], urls=[f"http://A.example{path}"])
    assert [seen(await web.get(path, headers=headers)) for headers in requests] == ["miss"] * 3 + ["hit"] * 3


async def test_everything_can_be_purged_by_the_tag_that_all_have(
    behind: Origin, web: httpx.AsyncClient, adapter: VarnishAdapter, path: str
) -> None:
    """For when nobody knows any more what was handed out."""
    targets = [f"{path}/{i}" for i in range(20)]
    for target in targets:
        behind.answers[target] = tagged(target, "everything")
    for target in targets:
        await web.get(target)
    await adapter.purge(tags=["everything"], urls=[])
    assert [seen(await web.get(target)) for target in targets] == ["miss"] * 20
    assert [seen(await web.get(target)) for target in targets] == ["hit"] * 20


async def test_a_purge_overtakes_a_fetch_under_way_and_a_second_one_mends_it(
    behind: Origin, web: httpx.AsyncClient, adapter: VarnishAdapter, varnish: Server, path: str
) -> None:
    """Why an invalidation purges twice: an answer made before the write is stored after the purge. Tag and URL alike."""
    for tags, urls in (([f"{path}-old"], []), ([], [varnish.url + path])):
        behind.answers[path] = tagged(f"{path}-old")
        behind.answers[path].body = "old"
        with behind.held(path) as came:
            fetching = asyncio.create_task(web.get(path))
            await asyncio.to_thread(came.wait, 10)
            behind.answers[path] = tagged(f"{path}-new")
            behind.answers[path].body = "new"
            await adapter.purge(tags=tags, urls=urls)
        assert (await fetching).text == "old"
        assert (await web.get(path)).text == "old", "if this is no longer so, one purge is enough"
        await adapter.purge(tags=tags, urls=urls)
        assert (await web.get(path)).text == "new"
        await adapter.purge(tags=[f"{path}-new"], urls=[])


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"xkey-purge": "t"},
        {"xkey-purge": "t", "quaestor-purge-token": "wrong-token"},
        {"xkey-purge": "t", "quaestor-purge-token": TOKEN.upper()},
    ],
    ids=str,
)
async def test_a_stranger_cannot_purge(
    behind: Origin, web: httpx.AsyncClient, path: str, headers: dict[str, str]
) -> None:
    behind.answers[path] = tagged("t")
    await web.get(path)
    answer = await web.request("PURGE", path, headers=headers)
    assert answer.status_code == 403
    assert "quaestor-purged" not in answer.headers
    assert seen(await web.get(path)) == "hit"


async def test_the_right_token_from_the_wrong_host_cannot_purge(behind: Origin) -> None:
    vcl = varnish_vcl(HOST, behind.port, purge_token=TOKEN, purgers=["192.0.2.0/24"])
    with running(partial(varnish_server, vcl=vcl), "varnish-elsewhere") as elsewhere:
        adapter = VarnishAdapter(elsewhere.url, token=TOKEN)
        with pytest.raises(CdnError, match="refused") as refused:
            await adapter.purge(tags=["t"], urls=[])
        await adapter.aclose()
    assert not refused.value.retryable


async def test_the_token_is_not_passed_on(behind: Origin, web: httpx.AsyncClient, path: str) -> None:
    await web.get(path, headers={"quaestor-purge-token": TOKEN, "quaestor-cache": "hit", "quaestor-purged": "1"})
    assert not [name for name in behind.asked[-1].headers if name.lower().startswith("quaestor")]


async def test_how_many_objects_went_is_answered(behind: Origin, web: httpx.AsyncClient, path: str) -> None:
    behind.answers[path] = tagged(f"{path}-t", vary="accept-language")
    for language in "xyz":
        await web.get(path, headers={"accept-language": language})
    token = {"quaestor-purge-token": TOKEN}
    by_url = await web.request("PURGE", path, headers=token)
    assert by_url.headers["quaestor-purged"] == "3"
    await web.get(path)
    by_tag = await web.request("PURGE", "/", headers=token | {"xkey-purge": f"{path}-t"})
    assert by_tag.headers["quaestor-purged"] == "1"
    nothing = await web.request("PURGE", path, headers=token)
    assert nothing.headers["quaestor-purged"] == "0"


async def test_without_the_token_the_adapter_says_what_to_do(varnish: Server) -> None:
    adapter = VarnishAdapter(varnish.url)
    with pytest.raises(CdnError, match="token"):
        await adapter.purge(tags=["t"], urls=[])
    await adapter.aclose()


async def test_something_that_is_not_our_varnish_is_not_taken_for_a_purge(behind: Origin) -> None:
    """A server that answers 200 to a PURGE it does not understand would be silent staleness."""
    adapter = VarnishAdapter(f"http://{HOST}:{behind.port}")
    with pytest.raises(CdnError, match="does not purge"):
        await adapter.purge(tags=["t"], urls=[])
    await adapter.aclose()


async def test_a_relative_url_is_refused(adapter: VarnishAdapter) -> None:
    for url in ("/relative", "http://host/é", "http://host/a b", "http://host/a\r\nx-evil: 1"):
        with pytest.raises(CdnError, match="cannot be purged"):
            await adapter.purge(tags=[], urls=[url])
    assert adapter.pending == 0


# Nodes that fail


async def test_a_varnish_that_was_away_is_purged_when_it_comes_back(behind: Origin, path: str) -> None:
    """The purge fails aloud, is kept, and arrives by itself; nothing has to be asked again."""
    events: list[PurgeEvent] = []
    purged = asyncio.Event()

    def observe(event: PurgeEvent) -> None:
        events.append(event)
        if event.outcome is Outcome.PURGED:
            purged.set()

    front = free_port()
    behind.answers[path] = tagged(f"{path}-t")
    vcl = varnish_vcl(HOST, behind.port, purge_token=TOKEN)
    with running(partial(varnish_server, vcl=vcl), "varnish-away") as server:
        async with httpx.AsyncClient(base_url=server.url, trust_env=False) as web:
            await web.get(path)
            relay = _Relay(front, server.port)
            adapter = VarnishAdapter(
                f"http://{HOST}:{front}", token=TOKEN, observe=observe, limits=BatchLimits(last_retry_ms=100)
            )
            with pytest.raises(CdnError, match="did not answer"):
                await adapter.purge(tags=[f"{path}-t"], urls=[])
            assert adapter.pending == 1
            assert seen(await web.get(path)) == "hit"
            async with relay:
                async with asyncio.timeout(20):
                    await purged.wait()
                assert seen(await web.get(path)) == "miss"
                assert adapter.pending == 0
                await adapter.purge(tags=[f"{path}-t"], urls=[])
            await adapter.aclose()
    assert events[0].outcome is Outcome.FAILED
    assert events[-1].outcome is Outcome.PURGED


async def test_every_node_is_told_and_one_that_is_down_does_not_keep_the_others_from_it(
    behind: Origin, web: httpx.AsyncClient, varnish: Server, path: str
) -> None:
    vcl = varnish_vcl(HOST, behind.port, purge_token=TOKEN)
    behind.answers[path] = tagged(f"{path}-t")
    with running(partial(varnish_server, vcl=vcl), "varnish-second") as second:
        adapter = VarnishAdapter([varnish.url, second.url], token=TOKEN, limits=BatchLimits(last_retry_ms=100))
        async with httpx.AsyncClient(base_url=second.url, trust_env=False) as other:
            await web.get(path)
            await other.get(path)
            await adapter.purge(tags=[f"{path}-t"], urls=[])
            assert (seen(await web.get(path)), seen(await other.get(path))) == ("miss", "miss")
        second.stop()
        with pytest.raises(CdnError, match=second.url):
            await adapter.purge(tags=[f"{path}-t"], urls=[])
        assert seen(await web.get(path)) == "miss"
        second.start()
        await adapter.purge(tags=[f"{path}-t"], urls=[])
        assert adapter.pending == 0
        await adapter.aclose()


async def test_a_varnish_that_does_not_answer_is_an_error_in_time() -> None:
    """Accepts the connection and says nothing: the purge fails after its own timeout, not never."""
    with socket.create_server((HOST, 0)) as deaf:
        adapter = VarnishAdapter(f"http://{HOST}:{deaf.getsockname()[1]}", timeout_s=0.1)
        with pytest.raises(CdnError, match="did not answer"):
            await adapter.purge(tags=["t"], urls=[])
        await adapter.aclose()


async def test_a_soft_purge_serves_the_old_answer_once_while_it_fetches_the_new(behind: Origin, path: str) -> None:
    """What soft=True means, with a configuration that has grace."""
    vcl = varnish_vcl(HOST, behind.port, purge_token=TOKEN, grace_s=60)
    with running(partial(varnish_server, vcl=vcl), "varnish-soft") as server:
        adapter = VarnishAdapter(server.url, token=TOKEN, soft=True)
        async with httpx.AsyncClient(base_url=server.url, trust_env=False) as web:
            for tags, urls in (([f"{path}-old"], []), ([], [server.url + path])):
                behind.answers[path] = tagged(f"{path}-old")
                behind.answers[path].body = "old"
                await web.request("PURGE", path, headers={"quaestor-purge-token": TOKEN})
                await web.get(path)
                behind.answers[path].body = "new"
                await adapter.purge(tags=tags, urls=urls)
                assert (await web.get(path)).text == "old"
                deadline = asyncio.get_running_loop().time() + 20
                while (await web.get(path)).text == "old":
                    assert asyncio.get_running_loop().time() < deadline
        await adapter.aclose()


class _Relay:
    """A TCP relay in front of a server, so that the server can be unreachable without losing what it keeps."""

    def __init__(self, port: int, server_port: int) -> None:
        self._port, self._server_port = port, server_port
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self._port)

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(HOST, self._server_port)
        self._writers += [writer, server_writer]
        await asyncio.gather(_pump(reader, server_writer), _pump(server_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


# Configuration


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend_host": 'x"; }'}, "backend_host"),
        ({"backend_port": 0}, "backend_port"),
        ({"purge_token": 'a"b'}, "purge_token"),
        ({"purge_token": "short"}, "purge_token"),
        ({"purge_token": None, "purgers": ["10.0.0.0/8"]}, "purge_token"),
        ({"purgers": ["example.com"]}, "purgers"),
        ({"grace_s": -1}, "grace_s"),
    ],
    ids=str,
)
def test_what_cannot_stand_in_vcl_is_refused(options: dict[str, object], message: str) -> None:
    values = {"backend_host": HOST, "backend_port": 80, "purge_token": TOKEN} | options
    with pytest.raises(ConfigurationError, match=message):
        varnish_vcl(values.pop("backend_host"), values.pop("backend_port"), **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("urls", [[], "localhost:6081", "ftp://host", "http://", "http://[::1"], ids=str)
def test_addresses_that_are_none_are_refused(urls: str | list[str]) -> None:
    with pytest.raises(ConfigurationError):
        VarnishAdapter(urls)
