"""Quotas of subscribed queries: the tenant with the most is refused first, and existing subscriptions stay."""

from __future__ import annotations

import pytest

from quaestor.incremental import PriorState
from quaestor.incremental.sides import pack_members
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.invalidation.matching.node_limits import NodeLimits
from quaestor.invalidation.matching.subscription_matching import AnnouncementError
from quaestor.model import AfterImage, Cell, GridShape, Operation, Query, WriteKind
from quaestor.realtime.quotas import QueryCharge, QuotaError, Quotas
from quaestor.realtime.round_robin import RoundRobinQueue
from quaestor.realtime.stats import StageStats, StageTenant, decode_stage_stats, encode_stage_stats

FAR_MS = 10**15
ONE = GridShape(query_partitions=1, write_partitions=1)


def followed(quotas: Quotas, tenant: str, number: int) -> list[QueryCharge]:
    """As many queries of one tenant as are let in, up to `number`."""
    held: list[QueryCharge] = []
    for _ in range(number):
        charge = QueryCharge()
        try:
            quotas.admit(charge, tenant, admitted_before=False)
        except QuotaError:
            break
        held.append(charge)
    return held


def test_the_largest_tenant_is_refused_and_a_small_one_is_not() -> None:
    """One that takes all it can leaves a fifth; another that comes later finds room, and nobody loses what he has."""
    quotas = Quotas(max_queries=100, max_bytes=10**9)
    greedy = followed(quotas, "greedy", 1_000)
    assert len(greedy) == 81
    modest = followed(quotas, "modest", 5)
    assert len(modest) == 5
    with pytest.raises(QuotaError, match="tenant 'greedy' holds 81 queries of the 100"):
        quotas.admit(QueryCharge(), "greedy", admitted_before=False)
    assert quotas.queries == 86
    assert {name: share.queries for name, share in quotas.usage.items()} == {"greedy": 81, "modest": 5}


def test_bytes_are_bounded_as_queries_are() -> None:
    """A result that is too large when it is read first is refused, one that is read again is not."""
    quotas = Quotas(max_queries=100, max_bytes=1_000_000)
    documents = [{"_id": number, "text": "x" * 1_000} for number in range(100)]
    small, large = QueryCharge(), QueryCharge()
    quotas.admit(small, "a", admitted_before=False)
    quotas.charge_result(small, documents[:10], number=10, first=True)
    quotas.admit(large, "a", admitted_before=False)
    with pytest.raises(QuotaError, match="narrow the query"):
        quotas.charge_result(large, documents, number=1_000, first=True)
    quotas.release_all(large)
    quotas.charge_result(small, documents, number=400, first=False)
    assert quotas.exceeded
    assert quotas.largest_tenant == "a"
    quotas.release_all(small)
    assert (quotas.queries, quotas.bytes, quotas.usage) == (0, 0, {})


def test_subscriptions_that_a_stage_takes_over_are_admitted_again() -> None:
    """The order does not matter: the tenants' parts bound new subscriptions, not ones admitted before."""
    quotas = Quotas(max_queries=100, max_bytes=10**9)
    assert len(followed(quotas, "modest", 19)) == 19
    for _ in range(81):
        quotas.admit(QueryCharge(), "greedy", admitted_before=True)
    assert quotas.queries == 100


def test_a_query_counts_once_for_all_and_once_for_each_tenant() -> None:
    quotas, held = Quotas(max_queries=10, max_bytes=10**9), QueryCharge()
    for tenant in ("a", "a", "b"):
        quotas.admit(held, tenant, admitted_before=False)
    assert quotas.queries == 1
    assert [(name, share.queries, share.subscriptions) for name, share in quotas.usage.items()] == [
        ("a", 1, 2),
        ("b", 1, 1),
    ]
    quotas.release(held, "a")
    quotas.release(held, "b")
    quotas.release(held, "b")
    assert quotas.queries == 1
    assert list(quotas.usage) == ["a"]
    quotas.release(held, "a")
    assert (quotas.queries, quotas.bytes, quotas.usage) == (0, 0, {})


def test_tenants_take_turns_at_being_read() -> None:
    """A hundred queries of one do not come before another's first, nor before his second."""
    queue = RoundRobinQueue()
    for number in range(100):
        queue.add(f"a{number}", "a")
    queue.add("b0", "b")
    queue.add("b1", "b")
    taken = []
    while len(taken) < 6:
        for query_id in queue:
            queue.remove(query_id)
            taken.append(query_id)
            break
    assert taken == ["a0", "b0", "a1", "b1", "a2", "a3"]
    assert len(queue) == 96


@pytest.mark.parametrize("removed", [(), ("a0",), ("a3", "a70"), tuple(f"a{number}" for number in range(60, 130))])
def test_queries_may_leave_the_queue_while_it_is_walked(removed: tuple[str, ...]) -> None:
    """All others come, each once, in order; the walk reads some at a time."""
    queue = RoundRobinQueue()
    names = [f"a{number}" for number in range(200)]
    for name in names:
        queue.add(name, "a")
    taken = []
    for name in queue:
        taken.append(name)
        if name == "a50":
            for other in removed:
                queue.remove(other)
    late = [name for name in names[64:] if name in removed]  # the first ones were read before they left
    assert taken == [name for name in names if name not in late]


def announce(node: MatchingNode, name: str, members: int) -> None:
    query = Query(namespace="db.c", operation=Operation.FIND, filter={"a": name})
    (share,) = pack_members("db.c", range(members), 1)
    node.subscriptions.announce(
        name, "t", query, prior_state=PriorState.MEMBERSHIP, version=1, members=[share], expires_at_ms=FAR_MS
    )


def test_a_cell_refuses_what_would_be_too_much_and_keeps_what_it_has() -> None:
    """Half of a node is subscribed queries' at most; one that is announced anew is not refused; all is given back in the end."""
    node = MatchingNode(
        Cell(query_partition=0, write_partition=0), ONE, retention_ms=FAR_MS, limits=NodeLimits(max_bytes=200_000)
    )
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


def test_a_stages_own_report_is_read_back_and_foreign_text_is_not() -> None:
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
