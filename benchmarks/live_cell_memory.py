"""Memory of a live query in a cell: bytes that Python allocates for each query, counted by tracemalloc.

The count does not depend on the load of the machine. Each query is a find with an equality, with a few members, as the cell
receives it: encoded and decoded once. Aim: at most 7 KiB in a cell. Run: python -m benchmarks.live_cell_memory
[--queries 20000] [--no-save] (1 minute)
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any, Final

from benchmarks import harness
from quaestor.incremental.maintenance import PriorState
from quaestor.incremental.sides import pack_members
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import AfterImage, Cell, GridShape, Operation, Query, WriteKind
from quaestor.realtime.codec import decode_query_event, encode_query_event
from quaestor.realtime.messages import Announcement

CELL: Final = Cell(query_partition=0, write_partition=0)
SHAPE: Final = GridShape(query_partitions=1, write_partitions=1)
NAMESPACE: Final = "shop.items"
MEMBERS: Final = 5
AIM_KIB: Final = 7.0
_LEASE_MS: Final = 120_000


def announcement(number: int, condition: dict[str, Any], *, members: int | None) -> bytes:
    """The event by which a stage announces a query to its cells.

    members: number of records in the result; None: the collection has before-images, so no members are announced.
    """
    packed = None if members is None else (pack_members(NAMESPACE, range(number, number + members), 1),)
    query = Query(namespace=NAMESPACE, operation=Operation.FIND, filter=condition)
    return encode_query_event(
        Announcement(
            query_id=f"{number:032x}",
            token=f"t{number}",
            query=query,
            memory=PriorState.BEFORE_IMAGES if packed is None else PriorState.MEMBERSHIP,
            version=1,
            members=packed,
            expires_at_ms=_LEASE_MS,
        )
    )


def bytes_a_query(queries: int, condition: Callable[[int], dict[str, Any]], *, members: int | None) -> float:
    """Bytes that a matching node allocates for each of so many queries."""
    node = MatchingNode(CELL, SHAPE, retention_ms=60_000)
    node.process(AfterImage(namespace="*", kind=WriteKind.TICK, version=1, wall_ms=1), now_ms=1)
    events = [announcement(number, condition(number), members=members) for number in range(queries + 1)]
    _announce(node, events[0])  # what the first one loads is no query's
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for event in events[1:]:
        _announce(node, event)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / queries


def _announce(node: MatchingNode, payload: bytes) -> None:
    event = decode_query_event(payload)
    assert isinstance(event, Announcement)
    shares = None if event.members is None else [share[0] for share in event.members]
    node.subscriptions.announce(
        event.query_id,
        event.token,
        event.query,
        prior_state=event.memory,
        version=event.version,
        members=shares,
        expires_at_ms=event.expires_at_ms,
    )


def measured(queries: int) -> dict[str, Any]:
    """Figures of three kinds of queries."""
    kinds: dict[str, tuple[Callable[[int], dict[str, Any]], int | None]] = {
        "equality": (lambda number: {"k": number}, MEMBERS),
        "equality, before-images": (lambda number: {"k": number}, None),
        "range and equality": (lambda number: {"k": number, "price": {"$gte": number, "$lt": number + 5}}, MEMBERS),
    }
    found = {
        name: round(bytes_a_query(queries, condition, members=members) / 1024, 2)
        for name, (condition, members) in kinds.items()
    }
    return {"queries": queries, "members": MEMBERS, "kib_a_query": found, "aim": {"kib_a_query": AIM_KIB}}


def main() -> None:
    """Measure and write the result."""
    given = harness.arguments(__doc__, queries=20_000)
    harness.report("live_cell_memory", measured(given.queries), keep=not given.no_save)


if __name__ == "__main__":
    main()
