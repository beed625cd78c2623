"""Leases of every implementation: one holder at a time, none for ever, and each waiting process gets the new entry."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from quaestor.model import CachedResponse
from quaestor.ports import Turn
from quaestor.redis.clients import SharedClient
from quaestor.store.redis import RedisStore
from tests.support import eventually

pytestmark = pytest.mark.anyio

ENTRY = CachedResponse(
    key="http://a/x", status=200, headers=(), body=b"x", etag=b'"e"', stored_at_ms=1, fresh_until_ms=2,
    registrations=("o:1",), tags=("t",), resource="/x",
)  # fmt: skip
KEY = ENTRY.key
OTHER = "http://a/other"


@pytest.fixture
def store(client: SharedClient, prefix: str) -> RedisStore:
    return RedisStore(client, deployment=prefix)


async def test_of_many_who_ask_at_once_one_gets_the_lease(store: RedisStore) -> None:
    turns = await asyncio.gather(*(store.take(KEY, holder=f"h{n}", lease_ms=60_000) for n in range(50)))
    assert turns.count(Turn.MINE) == 1
    assert turns.count(Turn.THEIRS) == 49
    assert await store.take(OTHER, holder="x", lease_ms=60_000) is Turn.MINE, "another key, another lease"


async def test_an_entry_is_returned_under_any_lease(store: RedisStore) -> None:
    await store.take(KEY, holder="a", lease_ms=60_000)
    await store.put(ENTRY, ttl_ms=60_000)
    assert await store.take(KEY, holder="b", lease_ms=60_000) == ENTRY


async def test_an_entry_found_dead_is_passed_over_and_its_successor_is_not(store: RedisStore) -> None:
    await store.put(ENTRY, ttl_ms=60_000)
    assert await store.take(KEY, holder="a", lease_ms=60_000, passing=ENTRY) is Turn.MINE
    assert await store.take(KEY, holder="b", lease_ms=60_000, passing=ENTRY) is Turn.THEIRS
    for successor in (replace(ENTRY, registrations=("o:2",)), replace(ENTRY, stored_at_ms=2, body=b"y" * 9_000)):
        await store.put(successor, ttl_ms=60_000)
        assert await store.take(KEY, holder="b", lease_ms=60_000, passing=ENTRY) == successor
        await store.put(replace(successor, stored_at_ms=1, registrations=("o:1",)), ttl_ms=60_000)
        assert await store.take(KEY, holder="b", lease_ms=60_000, passing=ENTRY) is Turn.THEIRS


async def test_an_unreadable_entry_is_passed_over(store: RedisStore, client: SharedClient) -> None:
    for damaged in (b"x", b"QE\x01", b"QZ\x01" + b"x" * 99):
        await client.set(store.name(KEY), damaged)
        assert await store.take(KEY, holder="a", lease_ms=60_000) is Turn.MINE


async def test_only_the_holder_gives_a_lease_back(store: RedisStore) -> None:
    await store.take(KEY, holder="a", lease_ms=60_000)
    await store.release(KEY, holder="b", uncoalesced_ms=0)
    assert await store.take(KEY, holder="c", lease_ms=60_000) is Turn.THEIRS
    await store.release(KEY, holder="a", uncoalesced_ms=0)
    assert await store.take(KEY, holder="c", lease_ms=60_000) is Turn.MINE


async def test_a_lease_whose_holder_died_expires_and_a_renewed_one_does_not(
    store: RedisStore, client: SharedClient
) -> None:
    """The renewed one must not be over before it is renewed, however slow the machine: so it is long, and becomes longer."""
    await store.take(KEY, holder="dead", lease_ms=200)
    await store.take(OTHER, holder="alive", lease_ms=60_000)
    await store.renew(KEY, holder="somebody else", lease_ms=600_000)
    await store.renew(OTHER, holder="alive", lease_ms=600_000)
    assert await client.pttl(store.lease_name(OTHER)) > 60_000

    async def free() -> bool:
        return await store.take(KEY, holder="next", lease_ms=60_000) is Turn.MINE

    await eventually(free)
    assert await store.take(OTHER, holder="next", lease_ms=60_000) is Turn.THEIRS


async def test_an_answer_that_cannot_be_shared_sets_everybody_free_for_a_while(store: RedisStore) -> None:
    for key, uncoalesced_ms in ((KEY, 60_000), (OTHER, 200)):
        await store.take(key, holder="a", lease_ms=60_000)
        await store.release(key, holder="a", uncoalesced_ms=uncoalesced_ms)
    assert await store.take(KEY, holder="b", lease_ms=60_000) is Turn.UNCOALESCED
    assert await store.take(KEY, holder="c", lease_ms=60_000) is Turn.UNCOALESCED

    async def over() -> bool:
        return await store.take(OTHER, holder="d", lease_ms=60_000) is Turn.MINE

    await eventually(over)
