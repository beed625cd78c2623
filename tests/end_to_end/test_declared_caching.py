"""Declarations of a route: bodies as keys, invalidation by tag, URL and collection, further dependencies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.end_to_end.declaring_site import Asked, Site, open_site
from tests.support import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture
async def site(mongo_url: str, prefix: str) -> AsyncIterator[Site]:
    async with open_site(mongo_url, prefix) as opened:
        yield opened


async def test_posts_are_answered_from_cache_by_their_body(site: Site) -> None:
    ask = {"method": "POST", "content_type": "application/json"}
    first = await site.warm("/graphql", content=b'{"query": "{a}"}', **ask)
    other = await site.ask("/graphql", content=b'{"query": "{b}"}', **ask)
    assert (first.said["data"], other.said["data"]) == ({"query": "{a}"}, {"query": "{b}"})
    assert first.headers["cache-control"] == "no-store"
    large = b'{"query": "' + b"a" * 100_000 + b'"}'
    assert (await site.ask("/graphql", content=large, **ask)).said["data"]["query"] == "a" * 100_000
    await site.items.insert_one({"kind": "a"})

    async def changed() -> bool:
        return bool((await site.ask("/graphql", content=b'{"query": "{a}"}', **ask)).said["items"] == 2)

    await eventually(changed)


async def test_a_mutation_is_not_cached(site: Site) -> None:
    body = b'{"query": "mutation {a}"}'
    for run in (1, 2, 3):
        answer = await site.ask("/graphql", method="POST", content=body, content_type="application/json")
        assert not answer.hit
        assert answer.said["run"] == run
    assert await site.items.count_documents({"kind": "b"}) == 3


async def test_graphql_over_get_works_by_itself(site: Site) -> None:
    await site.warm("/graphql?query={a}")
    assert (await site.ask("/graphql?query={b}")).said["data"] == "{b}"


async def test_the_query_method_is_keyed_by_its_body(site: Site) -> None:
    first = await site.warm("/search", method="QUERY", content=b"red shoes")
    assert first.said["asked"] == "red shoes"
    assert (await site.ask("/search", method="QUERY", content=b"blue shoes")).said["asked"] == "blue shoes"


# By hand


async def gone(site: Site, path: str, was: Asked, **headers: str) -> None:
    async def changed() -> bool:
        return bool((await site.ask(path, **headers)).said["run"] > was.said["run"])

    await eventually(changed)


async def test_a_tag_invalidates_what_carries_it_and_nothing_else(site: Site) -> None:
    first = await site.warm("/weather")
    await site.quaestor.invalidate(tags=["weather"])
    await gone(site, "/weather", first)
    weather, routed = await site.warm("/weather"), await site.warm("/routed")
    mine = await site.warm("/me", authorization="Bearer ann")
    await site.quaestor.invalidate(tags=["weather", "me"])
    await gone(site, "/weather", weather)
    await gone(site, "/me", mine, authorization="Bearer ann")
    assert (await site.ask("/routed")).said == routed.said
    await site.quaestor.invalidate(tags=["routed"])
    await gone(site, "/routed", routed)
    database, _, collection = site.quaestor.settings.store.control_namespace.partition(".")
    assert await site.client[database][collection].count_documents({}) == 0


async def test_tags_need_no_permission_to_list_the_collections_beside_them(site: Site) -> None:
    await site.warm("/weather")
    await site.warm("/routed")
    catalog: Any = site.quaestor.parts.resolver.resolver
    assert set(catalog._known) == {site.database}


async def test_an_answer_under_way_when_its_tag_is_invalidated_does_not_stay(site: Site) -> None:
    """An answer that was read before the call is not served for good, in any order of the two."""
    for _ in range(5):
        weather = await site.warm("/weather")
        await site.quaestor.invalidate(tags=["weather"])
        await gone(site, "/weather", weather)


@pytest.mark.parametrize(
    "url", ["/routed?a=1&b=2", "http://site/routed?b=2&a=1", "http://SITE:80/routed?b=2&utm_source=x&a=1"]
)
async def test_a_url_is_invalidated_in_all_its_spellings(site: Site, url: str) -> None:
    this, other = await site.warm("/routed?b=2&a=1"), await site.warm("/routed?a=1")
    await site.quaestor.invalidate(urls=[url])
    await gone(site, "/routed?a=1&b=2", this)
    assert (await site.ask("/routed?a=1")).said == other.said


async def test_the_url_of_a_route_without_a_declaration_is_invalidated_as_it_is_stored(site: Site) -> None:
    this, other = await site.warm("/undeclared?a=1"), await site.warm("/undeclared?a=2")
    await site.quaestor.invalidate(urls=["http://site/undeclared?utm_source=x&a=1"])
    await gone(site, "/undeclared?a=1", this)
    assert (await site.ask("/undeclared?a=2")).said == other.said


async def test_a_collection_invalidates_every_answer_that_read_from_it(site: Site) -> None:
    page, weather = await site.warm("/undeclared"), await site.warm("/weather")
    await site.quaestor.invalidate(collections=[site.items])
    await gone(site, "/undeclared", page)
    assert (await site.ask("/weather")).said == weather.said


async def test_a_further_dependency_counts_like_a_read(site: Site) -> None:
    page = await site.warm("/depends")
    await site.client[site.database].stock.insert_one({"shop": 2})
    await site.client[site.database].stock.insert_one({"shop": 1})
    await gone(site, "/depends", page)


@pytest.mark.parametrize(
    "said",
    [{"tags": ["a b"]}, {"urls": ["items"]}, {"urls": ["http://a b/"]}, {"collections": ["items"]}, {"tags": "one"}],
)
async def test_answers_without_invalidation_are_refused_with_the_reason(site: Site, said: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=r"is no|one text"):
        await site.quaestor.invalidate(**said)
