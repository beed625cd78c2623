"""What a stage and a cell keep of subscribed queries is bounded: who holds most is refused first, what is there stays."""

from __future__ import annotations

import pytest

from quaestor.incremental import PriorState
from quaestor.incremental.sides import pack_members
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.invalidation.matching.subscription_matching import AnnouncementError
from quaestor.model import AfterImage, Cell, GridShape, Operation, Query, WriteKind
from quaestor.realtime.fair_order import FairOrder
from quaestor.realtime.quotas import Held, QuotaError, Quotas
from quaestor.realtime.stats import StageStats, StageTenant, decode_stage_stats, encode_stage_stats

FAR_MS = 10**15
ONE = GridShape(query_partitions=1, write_partitions=1)


def followed(room: Quotas, tenant: str, number: int) -> list[Held]:
    """As many queries of one tenant as are let in, up to `number`."""
    held: list[Held] = []
    for _ in range(number):
        one = Held()
        try:
            room.follow(one, tenant, old=False)
        except QuotaError:
            break
        held.append(one)
    return held


def test_the_largest_tenant_is_refused_and_a_small_one_is_not() -> None:
    """One that takes all it can leaves a fifth; another that comes later finds room, and nobody loses what he has."""
    room = Quotas(max_queries=100, max_bytes=10**9)
    greedy = followed(room, "greedy", 1_000)
    assert len(greedy) == 81
    modest = followed(room, "modest", 5)
    assert len(modest) == 5
    with pytest.raises(QuotaError, match="tenant 'greedy' holds 81 queries of the 100"):
        room.follow(Held(), "greedy", old=False)
    assert room.queries == 86
    assert {name: share.queries for name, share in room.shares.items()} == {"greedy": 81, "modest": 5}


def test_bytes_are_bounded_as_queries_are() -> None:
    """A result that is too large when it is read first is refused, one that is read again is not."""
    room = Quotas(max_queries=100, max_bytes=1_000_000)
    documents = [{"_id": number, "text": "x" * 1_000} for number in range(100)]
    small, large = Held(), Held()
    room.follow(small, "a", old=False)
    room.built(small, documents[:10], number=10, first=True)
    room.follow(large, "a", old=False)
    with pytest.raises(QuotaError, match="narrow the query"):
        room.built(large, documents, number=1_000, first=True)
    room.drop(large)
    room.built(small, documents, number=400, first=False)
    assert room.crowded
    assert room.largest == "a"
    room.drop(small)
    assert (room.queries, room.bytes, room.shares) == (0, 0, {})


def test_what_a_stage_takes_over_is_let_in_again() -> None:
    """Whatever the order in which it comes: the tenants' parts bound what is new, not what was let in before."""
    room = Quotas(max_queries=100, max_bytes=10**9)
    assert len(followed(room, "modest", 19)) == 19
    for _ in range(81):
        room.follow(Held(), "greedy", old=True)
    assert room.queries == 100


def test_a_query_counts_once_for_all_and_once_for_each_tenant() -> None:
    room, held = Quotas(max_queries=10, max_bytes=10**9), Held()
    for tenant in ("a", "a", "b"):
        room.follow(held, tenant, old=False)
    assert room.queries == 1
    assert [(name, share.queries, share.subscriptions) for name, share in room.shares.items()] == [
        ("a", 1, 2),
        ("b", 1, 1),
    ]
    room.leave(held, "a")
    room.leave(held, "b")
    room.leave(held, "b")
    assert room.queries == 1
    assert list(room.shares) == ["a"]
    room.leave(held, "a")
    assert (room.queries, room.bytes, room.shares) == (0, 0, {})


def test_tenants_take_turns_at_being_read() -> None:
    """A hundred queries of one do not come before another's first, nor before his second."""
    turns = FairOrder()
    for number in range(100):
        turns.add(f"a{number}", "a")
    turns.add("b0", "b")
    turns.add("b1", "b")
    taken = []
    while len(taken) < 6:
        for query_id in turns:
            turns.remove(query_id)
            taken.append(query_id)
            break
    assert taken == ["a0", "b0", "a1", "b1", "a2", "a3"]
    assert len(turns) == 96


def announce(node: MatchingNode, name: str, members: int) -> None:
    query = Query(namespace="db.c", operation=Operation.FIND, filter={"a": name})
    (share,) = pack_members("db.c", range(members), 1)
    node.subscriptions.announce(
        name, "t", query, prior_state=PriorState.MEMBERSHIP, version=1, members=[share], expires_at_ms=FAR_MS
    )


def test_a_cell_refuses_what_would_be_too_much_and_keeps_what_it_has() -> None:
    """Half of a node is subscribed queries' at most; one that is announced anew is not refused; all is given back in the end."""
    node = MatchingNode(Cell(query_partition=0, write_partition=0), ONE, retention_ms=FAR_MS, max_bytes=200_000)
    node.process(AfterImage(namespace="*", kind=WriteKind.TICK, version=1), now_ms=0)
    announce(node, "first", 700)
    assert node.bytes == node.subscriptions.held_bytes > 700 * 100
    with pytest.raises(AnnouncementError, match="add write or query partitions") as refused:
        announce(node, "second", 700)
    assert refused.value.final
    assert len(node.subscriptions) == 1
    announce(node, "first", 900)
    image = AfterImage(
        namespace="db.c", kind=WriteKind.INSERT, version=2, key=5_000, after={"_id": 5_000, "a": "first"}
    )
    before = node.subscriptions.held_bytes
    node.process(image, now_ms=0)
    assert node.subscriptions.held_bytes > before
    node.subscriptions.end("first")
    assert node.subscriptions.held_bytes == node.bytes == 0
    announce(node, "second", 700)


def test_what_a_stage_says_of_itself_is_read_back_and_what_is_foreign_is_not() -> None:
    stats = StageStats(
        query_partition=1, shape=ONE, at_ms=5, queries=2, subscriptions=3, bytes=7, behind=1, renewals=4, matched=9, refused=1,
        matched_per_s=0.5, lag_ms=-1, tenants=(StageTenant(tenant="t", queries=2, subscriptions=3, bytes=7),),
    )  # fmt: skip
    assert decode_stage_stats(encode_stage_stats(stats)) == stats
    assert decode_stage_stats(b"nothing of ours") is None
    assert (
        decode_stage_stats(
            encode_stage_stats(stats).replace(b"\x02t\x00\x02\x00\x00\x00g", b"\x02t\x00\x02\x00\x00\x00s")
        )
        is None
    )
