"""Purges of every hosted provider do on its contract what the port promises."""

from __future__ import annotations

import pytest

from quaestor.cdn_adapters import Delivered
from quaestor.cdn_adapters.capabilities import EVERYTHING, TAG, URL
from quaestor.cdn_adapters.requests import requests_of
from tests.cdn_contracts.providers import World
from tests.cdn_contracts.purging import purge

pytestmark = pytest.mark.anyio

TAGS = ("a", "a/b", "two words", "x,y", "é/北京", "100%", "p:q", 'q-"x"', "#hash", "*")
SHOP = "https://shop.example"


def by_tag(world: World) -> bool:
    if TAG not in world.place.capabilities.kinds:
        pytest.skip("it knows no tags")
    return True


async def test_a_purge_by_tag_removes_exactly_what_carries_the_tag(world: World) -> None:
    """One of several tags is enough; a tag that begins alike is another one. URLs are not named, so none can be meant."""
    assert by_tag(world)
    for name, tags in (("a", ["own-a", "both"]), ("b", ["both", "own-b"]), ("c", ["own-c", "both-not"]), ("d", [])):
        world.contract.cache.store(f"{SHOP}/{name}", world.place.response_headers(tags))
    assert await purge(world, tags=["both"]) == [Delivered(pace=any_pace(world))]
    assert [f"{SHOP}/{name}" in world.contract.cache for name in "abcd"] == [False, False, True, True]


async def test_a_tag_with_any_characters_is_one_tag(world: World) -> None:
    """Separators, blanks and characters that a provider forbids are encoded: they neither split a tag nor have it
    refused.
    """
    assert by_tag(world)
    for number, tag in enumerate(TAGS):
        world.contract.cache.store(f"{SHOP}/{number}", world.place.response_headers([tag]))
        world.contract.cache.store(f"{SHOP}/other{number}", world.place.response_headers([tag + "z"]))
    for tag in TAGS:
        if hasattr(world.contract, "bucket"):
            world.contract.bucket.tokens = world.contract.bucket.capacity
        assert all(isinstance(answer, Delivered) for answer in await purge(world, tags=[tag])), tag
    assert [number for number in range(len(TAGS)) if f"{SHOP}/{number}" in world.contract.cache] == []
    assert all(f"{SHOP}/other{number}" in world.contract.cache for number in range(len(TAGS)))


async def test_a_purge_by_url_removes_that_url(world: World) -> None:
    """A purge by URL removes that URL alone, except as the capabilities declare for query and case."""
    if URL not in world.place.capabilities.kinds:
        pytest.skip("it purges no URLs")
    for path in ("/a", "/ab", "/b", "/a?x=1", "/", "/café%20d%27or?q=a%26b&r=%C3%A9"):
        world.contract.cache.store(SHOP + path, [])
    assert all(isinstance(answer, Delivered) for answer in await purge(world, urls=[f"{SHOP}/a", f"{SHOP}/"]))
    query_too = world.place.capabilities.url_ignores_query
    assert [SHOP + path in world.contract.cache for path in ("/a", "/ab", "/b", "/a?x=1", "/")] == [
        False, True, True, not query_too, False,
    ]  # fmt: skip


async def test_a_url_is_purged_as_clients_spell_it(world: World) -> None:
    """Percent signs, ampersands and what looks like another part of a URL reach the provider as they are."""
    if URL not in world.place.capabilities.kinds:
        pytest.skip("it purges no URLs")
    for url in (
        f"{SHOP}/caf%C3%A9/d'or?q=a%26b&r=%C3%A9",
        f"{SHOP}/a+b;c=d?e=f%2Bg",
        f"{SHOP}/a/../b",
        f"{SHOP}/~(x)!$,@:",
    ):
        world.contract.cache.store(url, [])
        assert all(isinstance(answer, Delivered) for answer in await purge(world, urls=[url]))
        assert url not in world.contract.cache


async def test_purging_what_nobody_has_heard_of_and_purging_twice_is_harmless(world: World) -> None:
    """Purges are delivered at least once."""
    kinds = world.place.capabilities.kinds
    for _ in range(2):
        if TAG in kinds:
            assert all(isinstance(answer, Delivered) for answer in await purge(world, tags=["unknown"]))
            if hasattr(world.contract, "bucket"):
                world.contract.bucket.tokens = world.contract.bucket.capacity


async def test_many_purges_go_in_requests_that_the_provider_takes(world: World) -> None:
    """Cut by number and by bytes: the contract refuses one target, or byte, too many, and refuses none of these."""
    tags = [f"tag-{number:04d}-of-a-usual-length" for number in range(700)]
    urls = [f"{SHOP}/a/rather/long/path/{number}?with=a&query={'x' * 60}" for number in range(700)]
    refill(world)
    targets = world.place.targets(tags=tags, urls=urls)
    batches = list(requests_of(world.place.capabilities, targets))
    assert sum(map(len, batches)) == len(targets)
    async with world.place.connect() as connection:
        for batch in batches:
            refill(world)
            await connection.send(batch)
            last = world.served.requests[-1]
            assert len(last.body) < 100_000 * 2
    refused = [request for request in world.served.requests if request.path == "refused"]
    assert refused == []


async def test_everything_is_purged_where_nothing_else_can_express_it(world: World) -> None:
    """Tags that belong to no URL, in a place without tags."""
    if EVERYTHING not in world.place.capabilities.kinds or TAG in world.place.capabilities.kinds:
        pytest.skip("it has tags, or cannot purge everything")
    world.contract.cache.store(f"{SHOP}/a", [])
    assert all(isinstance(answer, Delivered) for answer in await purge(world, tags=["t"]))
    assert f"{SHOP}/a" not in world.contract.cache


def refill(world: World) -> None:
    """Every bucket of the contract, and what is in progress is done."""
    for name in ("bucket", "files", "requests", "exact"):
        bucket = getattr(world.contract, name, None)
        if bucket is not None:
            bucket.tokens = bucket.capacity
    for bucket in getattr(world.contract, "objects", {}).values():
        bucket.tokens = bucket.capacity
    if hasattr(world.contract, "complete"):
        world.contract.complete()


class any_pace:  # noqa: N801
    """Equal to every pace that a provider reports."""

    def __init__(self, world: World) -> None:
        self.world = world

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]
