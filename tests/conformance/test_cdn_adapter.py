"""CDN adapters of every implementation: a purge removes exactly its targets, and is effective when it returns."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Protocol

import httpx
import pytest

from benchmarks.setups.faults.proxy import Link, Links
from quaestor.cdn_adapters import BatchLimits, FanOut, MemoryAdapter, MemoryCdn, VarnishAdapter, varnish_vcl
from quaestor.errors import CdnError
from quaestor.ports import CdnAdapter
from quaestor.testing.servers import HOST, Server, free_port, running, varnish_server
from tests.end_to_end.origin import Answer, Origin, origin
from tests.end_to_end.varnish_site import CACHED, TOKEN, needs_varnish, seen
from tests.support import PATIENCE_S, eventually

pytestmark = pytest.mark.anyio

LIMITS = BatchLimits(first_retry_ms=10, last_retry_ms=100)
HOSTILE = (
    "two words", "a,b", "tab\there", "line\r\nset-cookie: stolen=1", "nul\0", "é/北京", "100%", "%20", 'q-"x"', "\x7f", "*",
    "x" * 500,
)  # fmt: skip
FIELD_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
FIELD_VALUE = re.compile(rb"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


class Edge(Protocol):
    """A CDN that an adapter purges, and what the tests need of it besides."""

    adapter: CdnAdapter

    def url(self, path: str) -> str:
        """The URL under which clients ask for a path."""

    async def keep(self, path: str, tags: Sequence[str]) -> None:
        """Have the CDN keep a response of that path, with the headers that its adapter gives for these tags."""

    async def kept(self, path: str) -> bool:
        """Whether it still had the response. Ask once for each keep(): a cache fetches what it has not."""

    def go_away(self) -> None:
        """Make the CDN unreachable from now on, with its content kept."""

    def come_back(self) -> None: ...


class MemoryEdge:
    """One MemoryCdn, or several that are purged as one."""

    def __init__(self, nodes: int) -> None:
        self.cdns = [MemoryCdn(f"memory {number}") for number in range(nodes)]
        adapters = [MemoryAdapter(cdn, limits=LIMITS) for cdn in self.cdns]
        self.adapter: CdnAdapter = adapters[0] if nodes == 1 else FanOut("memory", adapters)

    def url(self, path: str) -> str:
        return f"https://edge.example{path}"

    async def keep(self, path: str, tags: Sequence[str]) -> None:
        for cdn in self.cdns:
            cdn.store(self.url(path), self.adapter.response_headers(tags))

    async def kept(self, path: str) -> bool:
        presence = {self.url(path) in cdn for cdn in self.cdns}
        assert len(presence) == 1, "a purge went to a part of them"
        return presence.pop()

    def go_away(self) -> None:
        self.cdns[-1].outage = CdnError("away")

    def come_back(self) -> None:
        self.cdns[-1].outage = None


class VarnishEdge:
    """A real varnishd with xkey before a real origin. Purges go through a link that can be cut."""

    def __init__(self, server: Server, behind: Origin, web: httpx.AsyncClient, link: Link) -> None:
        self.adapter: CdnAdapter = VarnishAdapter(
            f"http://{HOST}:{link.port}", token=TOKEN, timeout_s=PATIENCE_S, limits=LIMITS
        )
        self._base = server.url
        self._behind = behind
        self._web = web
        self._link = link

    def url(self, path: str) -> str:
        return self._base + path

    async def keep(self, path: str, tags: Sequence[str]) -> None:
        headers = {name.decode(): value.decode() for name, value in self.adapter.response_headers(tags)}
        self._behind.answers[path] = Answer(CACHED | headers)
        await self._web.get(path)
        assert await self.kept(path)

    async def kept(self, path: str) -> bool:
        return seen(await self._web.get(path)) == "hit"

    def go_away(self) -> None:
        self._link.reset()

    def come_back(self) -> None:
        self._link.pass_()


@pytest.fixture(scope="module")
def behind() -> Iterator[Origin]:
    with origin(free_port()) as there:
        yield there


@pytest.fixture(scope="module")
def varnish(behind: Origin) -> Iterator[Server]:
    vcl = varnish_vcl(HOST, behind.port, purge_token=TOKEN)
    with running(partial(varnish_server, vcl=vcl), "varnish") as server:
        yield server


@pytest.fixture(params=["memory", "several", pytest.param("varnish", marks=needs_varnish)])
async def edge(request: pytest.FixtureRequest, links: Links) -> AsyncIterator[Edge]:
    async with AsyncExitStack() as stack:
        edge: Edge
        if request.param == "varnish":
            server: Server = request.getfixturevalue("varnish")
            web = await stack.enter_async_context(httpx.AsyncClient(base_url=server.url, timeout=10, trust_env=False))
            edge = VarnishEdge(server, request.getfixturevalue("behind"), web, links.to(server.port))
        else:
            edge = MemoryEdge(nodes=1 if request.param == "memory" else 3)
        stack.push_async_callback(edge.adapter.aclose)
        yield edge


@pytest.fixture
def path(prefix: str) -> str:
    """A path of this test's own."""
    return f"/{prefix}"


async def test_a_purge_by_tag_removes_exactly_what_carries_the_tag(edge: Edge, path: str) -> None:
    """One of several tags of an object is enough; a tag that begins alike is another one."""
    await edge.keep(f"{path}/a", [f"{path}-a", f"{path}-both"])
    await edge.keep(f"{path}/b", [f"{path}-both", f"{path}-b"])
    await edge.keep(f"{path}/c", [f"{path}-c", f"{path}-both-not"])
    await edge.keep(f"{path}/d", [])
    await edge.adapter.purge(tags=[f"{path}-both"], urls=[])
    assert [await edge.kept(f"{path}/{name}") for name in "abcd"] == [False, False, True, True]


async def test_several_tags_at_once(edge: Edge, path: str) -> None:
    for name in "abc":
        await edge.keep(f"{path}/{name}", [f"{path}-{name}"])
    await edge.adapter.purge(tags=[f"{path}-a", f"{path}-c"], urls=[])
    assert [await edge.kept(f"{path}/{name}") for name in "abc"] == [False, True, False]


async def test_a_purge_by_url_removes_that_url_and_nothing_else(edge: Edge, path: str) -> None:
    """For what was handed out without a tag. The query string belongs to a URL."""
    for name in ("a", "ab", "b"):
        await edge.keep(f"{path}/{name}", [f"{path}-t"])
    await edge.adapter.purge(tags=[], urls=[edge.url(f"{path}/a")])
    await edge.adapter.purge(tags=[], urls=[edge.url(f"{path}/b?x=1")])
    assert [await edge.kept(f"{path}/{name}") for name in ("a", "ab", "b")] == [False, True, True]


async def test_purging_twice_is_harmless(edge: Edge, path: str) -> None:
    """Purges are delivered at least once, and several processes may ask for the same."""
    await edge.keep(f"{path}/a", [f"{path}-a"])
    await edge.keep(f"{path}/b", [f"{path}-b"])
    for _ in range(2):
        await edge.adapter.purge(tags=[f"{path}-a", f"{path}-a"], urls=[])
    await asyncio.gather(*(edge.adapter.purge(tags=[f"{path}-a"], urls=[]) for _ in range(10)))
    assert [await edge.kept(f"{path}/{name}") for name in "ab"] == [False, True]


async def test_an_unknown_target_is_purged_silently(edge: Edge, path: str) -> None:
    await edge.keep(path, [f"{path}-t"])
    await edge.adapter.purge(tags=[f"{path}-unknown"], urls=[])
    await edge.adapter.purge(tags=[], urls=[edge.url(f"{path}/unknown")])
    await edge.adapter.purge(tags=[], urls=[])
    assert await edge.kept(path)


async def test_a_purge_is_effective_when_it_returns(edge: Edge, path: str) -> None:
    """Each of many concurrent purges is effective when its own call returns."""
    names = [str(number) for number in range(30)]
    for name in names:
        await edge.keep(f"{path}/{name}", [f"{path}-{name}"])

    async def purged(name: str) -> bool:
        await edge.adapter.purge(tags=[f"{path}-{name}"], urls=[])
        return not await edge.kept(f"{path}/{name}")

    assert all(await asyncio.gather(*map(purged, names)))


async def test_an_answer_stored_after_a_purge_stays(edge: Edge, path: str) -> None:
    await edge.keep(path, [f"{path}-t"])
    await edge.adapter.purge(tags=[f"{path}-t"], urls=[])
    await edge.keep(path, [f"{path}-t"])
    assert await edge.kept(path)


async def test_a_cdn_that_is_away_is_a_cdn_error_that_may_be_tried_again(edge: Edge, path: str) -> None:
    """Nothing is silently left out: the caller hears of it, and asking again succeeds when the CDN is back."""
    await edge.keep(path, [f"{path}-t"])
    edge.go_away()
    with pytest.raises(CdnError) as failure:
        await edge.adapter.purge(tags=[f"{path}-t"], urls=[])
    assert failure.value.retryable
    edge.come_back()

    async def taken() -> bool:
        try:
            await edge.adapter.purge(tags=[f"{path}-t"], urls=[])
        except CdnError:
            return False
        return True

    await eventually(taken)
    assert not await edge.kept(path)


async def test_response_headers_are_well_formed_and_always_the_same(edge: Edge) -> None:
    """Every tag with any characters yields fields that each server may send (RFC 9110, section 5).

    No tags yield no fields.
    """
    tags = ["a", "b/c", *HOSTILE]
    headers = edge.adapter.response_headers(tags)
    assert headers
    assert headers == edge.adapter.response_headers(list(tags))
    for name, value in headers:
        assert FIELD_NAME.fullmatch(name)
        assert FIELD_VALUE.fullmatch(value)
    assert edge.adapter.response_headers([]) == []


@pytest.mark.parametrize("tag", HOSTILE, ids=lambda tag: repr(tag)[:20])
async def test_a_tag_with_any_characters_is_one_tag(edge: Edge, path: str, tag: str) -> None:
    """Separators and control characters neither split a tag nor reach the wire; a purge of a part leaves the whole tag."""
    await edge.keep(f"{path}/a", [path + tag])
    await edge.keep(f"{path}/b", [path])
    parts = {path, path + tag[:1], path + tag + "x", *re.split(r"[\s,]+", path + tag)} - {path + tag}
    await edge.adapter.purge(tags=sorted(parts), urls=[])
    assert not await edge.kept(f"{path}/b")
    assert await edge.kept(f"{path}/a")
    await edge.adapter.purge(tags=[path + tag], urls=[])
    assert not await edge.kept(f"{path}/a")


@pytest.mark.parametrize(
    "url", ["/relative", "no scheme", "http://a.example/a b", "http://a.example/\r\nx: y", "http://é.example/"]
)
async def test_a_text_that_is_no_absolute_url_is_refused_for_good(edge: Edge, url: str) -> None:
    with pytest.raises(CdnError) as refused:
        await edge.adapter.purge(tags=[], urls=[url])
    assert not refused.value.retryable


async def test_closing_twice_is_harmless_and_so_is_closing_what_was_never_used(edge: Edge, path: str) -> None:
    await edge.adapter.aclose()
    await edge.adapter.purge(tags=[f"{path}-t"], urls=[])
    await edge.adapter.aclose()
    await edge.adapter.aclose()


async def test_closing_while_the_cdn_is_away_ends_at_once(edge: Edge, path: str) -> None:
    edge.go_away()
    with pytest.raises(CdnError):
        await edge.adapter.purge(tags=[f"{path}-t"], urls=[])
    await edge.adapter.aclose()


async def test_it_has_a_name_for_metrics(edge: Edge) -> None:
    assert re.fullmatch("[a-z][a-z0-9-]*", edge.adapter.name)
