"""Purge outboxes of every implementation: each purge is sent although processes die, waits once, and all share the buckets."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest

from quaestor.errors import StoreError
from quaestor.purge_ports import Bucket, PurgeOutbox, QueuedPurge
from quaestor.redis.clients import SharedClient, shared_client
from quaestor.store.outbox_memory import MemoryOutbox
from quaestor.store.outbox_redis import RedisOutbox
from tests.support import PATIENCE_S, eventually

pytestmark = pytest.mark.anyio

NOW_MS = 1_700_000_000_000
LATER_MS = NOW_MS + 3_600_000
Q = "cloudflare zone-1"


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[SharedClient]:
    shared = shared_client(redis_url, timeout_s=PATIENCE_S)
    yield shared
    await shared.aclose()


@pytest.fixture(params=["memory", "redis"])
def outbox(request: pytest.FixtureRequest, client: SharedClient, prefix: str) -> PurgeOutbox:
    if request.param == "memory":
        return MemoryOutbox(most=20)
    return RedisOutbox(client, deployment=prefix, most=20)


async def put(outbox: PurgeOutbox, *members: str, now_ms: int = NOW_MS, until_ms: int = LATER_MS) -> None:
    await outbox.put(Q, members, until_ms=until_ms, now_ms=now_ms)


async def take(outbox: PurgeOutbox, token: str = "me", *, now_ms: int = NOW_MS, count: int = 100) -> list[QueuedPurge]:
    return await outbox.take(Q, token=token, count=count, lease_ms=1_000, now_ms=now_ms)


def names(purges: list[QueuedPurge]) -> list[str]:
    return [purge.member for purge in purges]


async def test_targets_are_taken_once_the_oldest_first(outbox: PurgeOutbox) -> None:
    await put(outbox, "0tag b", now_ms=NOW_MS - 5)
    await put(outbox, "0tag a", "0tag b")
    assert names(await take(outbox, count=1)) == ["0tag b"]
    assert names(await take(outbox)) == ["0tag a"]
    assert await take(outbox) == []


async def test_a_target_taken_and_not_done_comes_back_when_its_lease_is_over(outbox: PurgeOutbox) -> None:
    """Its taker has died; also of what was put in as taken."""
    await put(outbox, "0tag a")
    await take(outbox)
    await outbox.put(Q, ["0tag b"], until_ms=LATER_MS, now_ms=NOW_MS, token="me", lease_ms=1_000)
    assert await take(outbox, "you", now_ms=NOW_MS + 999) == []
    assert sorted(names(await take(outbox, "you", now_ms=NOW_MS + 1_000))) == ["0tag a", "0tag b"]


async def test_a_lease_can_be_prolonged(outbox: PurgeOutbox) -> None:
    await put(outbox, "0tag a")
    taken = await take(outbox)
    await outbox.renew(Q, taken, lease_ms=5_000, now_ms=NOW_MS)
    assert await take(outbox, now_ms=NOW_MS + 4_999) == []
    assert names(await take(outbox, now_ms=NOW_MS + 5_000)) == ["0tag a"]


async def test_a_target_added_while_it_is_under_way_is_sent_again(outbox: PurgeOutbox) -> None:
    """The purge under way may have happened before the write."""
    await put(outbox, "0tag a")
    taken = await take(outbox)
    await put(outbox, "0tag a")
    await outbox.done(Q, taken, now_ms=NOW_MS)
    assert await outbox.open(Q, ["0tag a", "0tag b"]) == [True, False]
    assert names(await take(outbox)) == ["0tag a"]


async def test_a_target_taken_by_two_and_done_by_one_is_not_forgotten(outbox: PurgeOutbox) -> None:
    await outbox.put(Q, ["0tag a"], until_ms=LATER_MS, now_ms=NOW_MS, token="me", lease_ms=1_000)
    await outbox.put(Q, ["0tag a"], until_ms=LATER_MS, now_ms=NOW_MS, token="you", lease_ms=1_000)
    await outbox.done(Q, [QueuedPurge("0tag a", "me", NOW_MS, LATER_MS, 0)], now_ms=NOW_MS)
    assert names(await take(outbox, "them", now_ms=NOW_MS + 2_000)) == ["0tag a"]


async def test_a_done_target_is_followed_by_its_later_phases_and_those_by_nothing(outbox: PurgeOutbox) -> None:
    """A later purge of the same puts them off: it does for both."""
    await put(outbox, "0tag a")
    await outbox.done(Q, await take(outbox), again=[("1", NOW_MS + 10), ("2", NOW_MS + 50)], now_ms=NOW_MS)
    assert await outbox.open(Q, ["0tag a"]) == [False]
    await put(outbox, "0tag a", now_ms=NOW_MS + 5)
    await outbox.done(Q, await take(outbox, now_ms=NOW_MS + 5), again=[("1", NOW_MS + 15)], now_ms=NOW_MS + 5)
    assert await take(outbox, now_ms=NOW_MS + 14) == []
    late = await take(outbox, now_ms=NOW_MS + 15)
    assert names(late) == ["1tag a"]
    await outbox.done(Q, late, again=[("1", NOW_MS + 30)], now_ms=NOW_MS + 15)
    assert names(await take(outbox, now_ms=NOW_MS + 49)) == []
    assert names(await take(outbox, now_ms=NOW_MS + 50)) == ["2tag a"]


async def test_a_failed_target_waits_and_counts_its_attempts(outbox: PurgeOutbox) -> None:
    await put(outbox, "0tag a")
    await outbox.retry(Q, await take(outbox), due_ms=NOW_MS + 100, now_ms=NOW_MS)
    assert await take(outbox, now_ms=NOW_MS + 99) == []
    [again] = await take(outbox, now_ms=NOW_MS + 100)
    assert (again.attempts, again.put_at_ms) == (1, NOW_MS)


async def test_an_untried_target_keeps_its_place_before_later_ones(outbox: PurgeOutbox) -> None:
    """However busy it is, the oldest is not the last."""
    await put(outbox, "0tag a")
    taken = await take(outbox)
    await put(outbox, "0tag b", now_ms=NOW_MS + 1)
    await outbox.retry(Q, taken, due_ms=NOW_MS + 2, failed=False, now_ms=NOW_MS + 2)
    first, second = await take(outbox, now_ms=NOW_MS + 2)
    assert (first.member, first.attempts, second.member) == ("0tag a", 0, "0tag b")


async def test_a_target_without_a_living_copy_is_dropped(outbox: PurgeOutbox) -> None:
    await put(outbox, "0tag a", until_ms=NOW_MS + 10)
    await put(outbox, "0tag b", until_ms=NOW_MS + 10)
    await put(outbox, "0tag b", until_ms=NOW_MS + 99)
    assert names(await take(outbox, now_ms=NOW_MS + 10)) == ["0tag b"]
    assert await outbox.open(Q, ["0tag a"]) == [False]


async def test_dead_letters_are_listed_replayed_and_dropped(outbox: PurgeOutbox) -> None:
    await put(outbox, "0tag a", "0tag b")
    await outbox.bury(Q, await take(outbox), reason="no such tag", now_ms=NOW_MS)
    letters = await outbox.dead(Q, count=10)
    assert sorted((letter.member, letter.reason, letter.at_ms) for letter in letters) == [
        ("0tag a", "no such tag", NOW_MS), ("0tag b", "no such tag", NOW_MS)
    ]  # fmt: skip
    assert (await outbox.size(Q)).dead == 2
    assert await outbox.replay(Q, now_ms=NOW_MS) == 2
    again = await take(outbox)
    assert sorted(names(again)) == ["0tag a", "0tag b"]
    await outbox.bury(Q, again, reason="still not", now_ms=NOW_MS)
    assert await outbox.drop(Q) == 2
    assert await outbox.dead(Q, count=10) == []


async def test_sizes_and_names_of_queues(outbox: PurgeOutbox) -> None:
    assert (await outbox.size(Q)).oldest_ms is None
    await put(outbox, "0tag a", now_ms=NOW_MS - 7)
    await put(outbox, "0tag b")
    await take(outbox, count=1)
    size = await outbox.size(Q)
    assert (size.waiting, size.taken, size.dead, size.oldest_ms) == (1, 1, 0, NOW_MS - 7)
    assert Q in await outbox.queues()
    assert names(await outbox.waiting(Q, count=10)) == ["0tag a", "0tag b"]


async def test_the_size_says_until_when_a_copy_may_live(outbox: PurgeOutbox) -> None:
    """No copy that an open purge is about is alive after that; later purges of what lives shorter change nothing."""
    now_ms = time.time_ns() // 1_000_000
    await outbox.put(Q, ["0tag a"], until_ms=now_ms + 90_000, now_ms=now_ms)
    await outbox.put(Q, ["0tag b"], until_ms=now_ms + 60_000, now_ms=now_ms)
    assert (await outbox.size(Q)).until_ms == now_ms + 90_000


async def test_the_busiest_minute_of_the_last_hour_is_known(outbox: PurgeOutbox) -> None:
    """A purge that already waits is not counted again, because it costs no more; a purge put in as taken is counted."""
    assert await outbox.busiest(Q, now_ms=NOW_MS) == 0
    await put(outbox, *(f"0tag {n}" for n in range(6)))
    await put(outbox, "0tag 0", "0tag 1")
    assert await outbox.busiest(Q, now_ms=NOW_MS) == 6 / 60
    await outbox.put(Q, ["0tag 9"], until_ms=LATER_MS, now_ms=NOW_MS + 60_000, token="me", lease_ms=1_000)
    assert await outbox.busiest(Q, now_ms=NOW_MS + 60_000) == 6 / 60
    assert await outbox.busiest(Q, now_ms=NOW_MS + 60 * 60_000) == 1 / 60
    assert await outbox.busiest(Q, now_ms=NOW_MS + 62 * 60_000) == 0


async def test_a_note_is_read_by_all_processes_of_the_deployment(outbox: PurgeOutbox) -> None:
    assert await outbox.noted("canary") is None
    await outbox.note("canary", "block: nothing goes", for_ms=60_000)
    await outbox.note("canary", "ok", for_ms=60_000)
    assert await outbox.noted("canary") == "ok"


async def test_a_full_outbox_refuses_and_forgets_nothing(outbox: PurgeOutbox) -> None:
    """A full outbox refuses further purges; the sender keeps its claim and tries again."""
    await put(outbox, *(f"0tag {n}" for n in range(20)))
    with pytest.raises(StoreError, match="20 purges"):
        await put(outbox, "0tag more")
    assert len(await take(outbox)) == 20


async def spend(outbox: PurgeOutbox, bucket: Bucket, payer: str = "me", now_ms: int = NOW_MS) -> int:
    return await outbox.accounts.spend(bucket, tokens=1, payer=payer, lease_ms=60_000, now_ms=now_ms)


async def test_tokens_are_spent_by_all_out_of_one_bucket_and_come_back_in_time(
    outbox: PurgeOutbox, prefix: str
) -> None:
    bucket = Bucket(prefix, per_s=0.5, burst=2)
    assert [await spend(outbox, bucket), await spend(outbox, bucket, "you")] == [0, 0]
    wait_ms = await spend(outbox, bucket)
    assert 0 < wait_ms <= 2_000


async def test_targets_under_way_leave_less_room_in_the_bucket(outbox: PurgeOutbox, prefix: str) -> None:
    """The provider may count it only when it arrives, and fills its own bucket only from then on."""
    bucket = Bucket(prefix, per_s=1_000, burst=2)
    assert await spend(outbox, bucket, "me") == 0
    assert await spend(outbox, bucket, "you") == 0
    assert await spend(outbox, bucket, "them", now_ms=NOW_MS + 10_000) > 0
    await outbox.accounts.settle(bucket, payer="me", now_ms=NOW_MS + 10_000)

    async def room() -> bool:
        return await spend(outbox, bucket, "them", now_ms=NOW_MS + 10_010) == 0

    await eventually(room)
    assert await spend(outbox, bucket, "others", now_ms=NOW_MS + 20_000) > 0


async def test_unsent_targets_are_paid_back(outbox: PurgeOutbox, prefix: str) -> None:
    bucket = Bucket(prefix, per_s=0.001, burst=1)
    assert await spend(outbox, bucket) == 0
    await outbox.accounts.settle(bucket, payer="me", sent=False, now_ms=NOW_MS)
    assert await spend(outbox, bucket, "you") == 0
    await outbox.accounts.settle(bucket, payer="you", now_ms=NOW_MS)
    assert await spend(outbox, bucket) > 0


async def test_a_payment_of_a_dead_process_is_settled_by_its_lease(outbox: PurgeOutbox, prefix: str) -> None:
    bucket = Bucket(prefix, per_s=1_000, burst=1)
    assert await outbox.accounts.spend(bucket, tokens=1, payer="dead", lease_ms=50, now_ms=NOW_MS) == 0
    later_ms = NOW_MS + 50

    async def room() -> bool:
        nonlocal later_ms
        later_ms += 1
        return await spend(outbox, bucket, now_ms=later_ms) == 0

    await eventually(room)


async def test_a_bucket_that_is_held_gives_nobody_anything(outbox: PurgeOutbox, prefix: str) -> None:
    bucket = Bucket(prefix, per_s=100, burst=100)
    await outbox.accounts.hold(bucket, for_ms=60_000, now_ms=NOW_MS)
    wait_ms = await spend(outbox, bucket)
    assert 50_000 < wait_ms <= 60_000


async def test_a_budget_is_charged_until_it_is_spent_and_no_further(outbox: PurgeOutbox, prefix: str) -> None:
    assert await outbox.accounts.charged(prefix) == 0
    assert await outbox.accounts.charge(prefix, number=3, most=4)
    assert not await outbox.accounts.charge(prefix, number=2, most=4)
    assert await outbox.accounts.charge(prefix, number=1, most=4)
    assert await outbox.accounts.charged(prefix) == 4


async def test_only_one_leads_until_it_resigns_or_falls_silent(client: SharedClient, prefix: str) -> None:
    """Its lease goes by the server's clock."""
    outbox = RedisOutbox(client, deployment=prefix)

    async def leads(token: str, lease_ms: int = 60_000) -> bool:
        return await outbox.lead(Q, token=token, lease_ms=lease_ms, now_ms=NOW_MS)

    assert await leads("me")
    assert not await leads("you")
    assert await leads("me")
    await outbox.resign(Q, token="you")
    assert not await leads("you")
    await outbox.resign(Q, token="me")
    assert await leads("you", lease_ms=30)

    async def mine() -> bool:
        return await leads("me")

    await eventually(mine)


async def test_deployments_share_nothing_but_the_buckets(client: SharedClient, prefix: str) -> None:
    outbox_, other = RedisOutbox(client, deployment=prefix), RedisOutbox(client, deployment=f"{prefix}-2")
    await put(outbox_, "0tag a")
    assert await take(other) == []
    bucket = Bucket(prefix, per_s=0.1, burst=1)
    assert await spend(outbox_, bucket) == 0
    assert await spend(other, bucket) > 0
