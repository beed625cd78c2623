"""Purges of a real varnishd: each removes exactly its targets, and is effective when it returns."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import httpx
import pytest

from quaestor.cdn_adapters import VarnishAdapter, varnish_vcl
from quaestor.testing.servers import HOST, Server, running, varnish_server
from tests.end_to_end.origin import Answer, Origin
from tests.end_to_end.varnish_site import (
    CACHED,
    TOKEN,
    adapter,
    behind,
    needs_varnish,
    path,
    seen,
    tagged,
    varnish,
    web,
)
from tests.support import PATIENCE_S, eventually

pytestmark = [pytest.mark.anyio, needs_varnish]
__all__ = ["adapter", "behind", "path", "varnish", "web"]


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
    adapter = VarnishAdapter(varnish.url, token=TOKEN, tags=False, timeout_s=PATIENCE_S)
    behind.default = Answer(CACHED)
    raw: dict[str, Any] = {"extensions": {"target": (path + target).encode()}}
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
    """An invalidation purges twice, by tag and by URL, because an answer made before the write may be stored after the
    first purge.
    """
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


async def test_how_many_objects_went_is_answered(behind: Origin, web: httpx.AsyncClient, path: str) -> None:
    behind.answers[path] = tagged(f"{path}-t", vary="accept-language")
    for language in "xyz":
        await web.get(path, headers={"accept-language": language})
    token = {"quaestor-purge-token": TOKEN}
    by_url = await web.request("PURGE", path, headers=token)
    assert by_url.headers["quaestor-purged"] == "3"
    other = f"{path}-other"  # what was ended by URL has its tags until Varnish has got round to removing it
    behind.answers[other] = tagged(f"{path}-u")
    await web.get(other)
    by_tag = await web.request("PURGE", "/", headers=token | {"xkey-purge": f"{path}-u"})
    assert by_tag.headers["quaestor-purged"] == "1"

    async def nothing_is_left() -> bool:
        """Return whether Varnish holds no object of the tag, expired ones included."""
        return (await web.request("PURGE", other, headers=token)).headers["quaestor-purged"] == "0"

    await eventually(nothing_is_left)


async def test_a_soft_purge_serves_the_old_answer_once_while_it_fetches_the_new(behind: Origin, path: str) -> None:
    """soft=True has this effect with a configuration that has grace."""
    vcl = varnish_vcl(HOST, behind.port, purge_token=TOKEN, grace_s=60)
    with running(partial(varnish_server, vcl=vcl), "varnish-soft") as server:
        adapter = VarnishAdapter(server.url, token=TOKEN, soft=True, timeout_s=PATIENCE_S)
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
