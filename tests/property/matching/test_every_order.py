"""The races between a read, writes and the registration of the read: every order of a small world, not a sample.

Three writes; the read sees the first r of them. The read is dated by `since`, a version known before it began. The read is
also dated by the server's operationTime, which may lie behind the state that it saw. Its registration reaches the node
after p images, more or fewer than the read has seen. Each image may come twice, and the node may be replaced by one
that replays the retained images. In every order, a registration that lives after an image holds the database's answer
as of that image.

(Thesis, section 3.3: write-query and write-subscription race conditions.)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from quaestor.invalidation.matching.node import MatchingNode
from quaestor.invalidation.registry.registration_building import dependencies, registration
from quaestor.model import (
    Activated,
    AfterImage,
    CapturedRead,
    Cell,
    GridShape,
    Invalidated,
    Operation,
    Query,
    Registration,
    WriteKind,
)

Document = dict[str, Any]
State = dict[int, Document]
SHAPE = GridShape(query_partitions=1, write_partitions=1)
NOW_MS = 1_700_000_000_000
BASE = 10
WRITES = 3
START: State = {1: {"_id": 1, "a": 1, "b": 1}, 2: {"_id": 2, "a": 1, "b": 2}, 3: {"_id": 3, "a": 0, "b": 3}}
CHANGES: tuple[tuple[int, Document | None], ...] = (
    (1, {"_id": 1, "a": 0, "b": 1}),  # leaves
    (3, {"_id": 3, "a": 1, "b": 0}),  # comes, at the front
    (2, None),
    (4, {"_id": 4, "a": 1, "b": 9}),  # comes, at the end
    (1, {"_id": 1, "a": 1, "b": 5}),  # moves
    (5, {"_id": 5, "a": 0, "b": 0}),  # concerns nobody
)
QUERIES = {
    "plain": Query(namespace="d.c", operation=Operation.FIND, filter={"a": 1}),
    "limited": Query(namespace="d.c", operation=Operation.FIND, filter={"a": 1}, sort=(("b", 1),), limit=2),
    "offset": Query(namespace="d.c", operation=Operation.FIND, filter={"a": 1}, sort=(("b", 1),), skip=1, limit=1),
    "count": Query(namespace="d.c", operation=Operation.COUNT, filter={"a": 1}),
}


class Order(NamedTuple):
    """read: writes that it saw. since, dated: as indexes of writes. arrives: images that the node has had before."""

    read: int
    since: int
    dated: int
    arrives: int


ORDERS = [
    Order(read, since, dated, arrives)
    for read in range(WRITES + 1)
    for since in range(read + 1)
    for dated in range(read, WRITES + 1)
    for arrives in range(WRITES + 1)
]


def histories() -> Iterator[tuple[list[State], list[AfterImage]]]:
    """Every sequence of changes: the states before, between and after them, and their images."""
    for changes in itertools.product(CHANGES, repeat=WRITES):
        states, images = [START], []
        for number, (key, document) in enumerate(changes, start=1):
            state = dict(states[-1])
            kind = WriteKind.DELETE if document is None else WriteKind.REPLACE if key in state else WriteKind.INSERT
            if document is None:
                state.pop(key, None)
            else:
                state[key] = document
            states.append(state)
            images.append(
                AfterImage(
                    namespace="d.c", kind=kind, version=BASE + number, key=key, after=document,
                    after_exact=document is not None, wall_ms=NOW_MS + number,
                )
            )  # fmt: skip
        yield states, images


def result(query: Query, state: State) -> list[Document]:
    documents = [document for document in state.values() if document["a"] == 1]
    for path, _ in query.sort:
        documents.sort(key=lambda document: document[path])
    documents = documents[query.skip : query.skip + query.limit if query.limit else None]
    return [{"n": len(documents)}] if query.operation is Operation.COUNT else documents


def same(query: Query, shown: list[Document], state: State) -> bool:
    """Without a sort, the order is nobody's promise."""
    now = result(query, state)
    return shown == now if query.sort else sorted(map(repr, shown)) == sorted(map(repr, now))


def registered(query: Query, shown: list[Document], order: Order) -> Registration:
    counted = query.operation is Operation.COUNT
    read = CapturedRead(
        query=query,
        read_at=BASE + order.dated,
        ids=None if counted else tuple(document["_id"] for document in shown),
        last=shown[-1] if query.sort and shown else None,
    )
    (dependency,) = dependencies([read])
    return registration(
        dependency, registration_id="r", tenant="t", since=BASE + order.since, expires_at_ms=NOW_MS + 10**9
    )


def node() -> MatchingNode:
    made = MatchingNode(Cell(query_partition=0, write_partition=0), SHAPE, retention_ms=60_000)
    made.process(AfterImage(namespace="*", kind=WriteKind.TICK, version=BASE, wall_ms=NOW_MS), now_ms=NOW_MS)
    return made


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("repeated", [1, 2], ids=["each image once", "each image twice"])
def test_nothing_live_is_stale_in_any_order(name: str, repeated: int) -> None:
    query, lived, died = QUERIES[name], 0, 0
    for states, images in histories():
        for order in ORDERS:
            matching = node()
            for image in images[: order.arrives]:
                matching.process(image, now_ms=NOW_MS)
            shown = result(query, states[order.read])
            outcome = matching.register(registered(query, shown, order), now_ms=NOW_MS)[-1]
            live = isinstance(outcome, Activated)
            where = (name, order, [(image.key, image.after) for image in images])
            if live and order.arrives >= order.read:
                assert same(query, shown, states[order.arrives]), ("activated", where)
            for seen, image in enumerate(images[order.arrives :], start=order.arrives + 1):
                for _ in range(repeated):
                    fired = matching.process(image, now_ms=NOW_MS)
                    live = live and not any("r" in notification.registration_ids for notification in fired)
                if live and seen >= order.read:
                    assert same(query, shown, states[seen]), (seen, where)
            lived += live
            died += not live
    assert died > 1_000
    assert lived > 1_000, "and what no write has touched mostly lives"


@pytest.mark.parametrize("name", QUERIES)
def test_nor_if_the_node_is_replaced_when_it_has_had_any_number_of_images(name: str) -> None:
    """The next one replays what is retained and takes the registration over as of the checkpoint, as a cell does."""
    query, lived = QUERIES[name], 0
    some = [order for order in ORDERS if order.dated == WRITES or order.dated == order.read]
    for states, images in itertools.islice(histories(), 0, None, 3):
        for order in some:
            shown = result(query, states[order.read])
            event = registered(query, shown, order)
            first = node()
            for image in images[: order.arrives]:
                first.process(image, now_ms=NOW_MS)
            if not isinstance(first.register(event, now_ms=NOW_MS)[-1], Activated):
                continue
            for checkpoint in range(order.arrives, WRITES + 1):
                if checkpoint > order.arrives and first.process(images[checkpoint - 1], now_ms=NOW_MS):
                    break
                second = node()
                for image in images[:checkpoint]:
                    second.process(image, now_ms=NOW_MS)
                as_of = Registration(
                    **{name: getattr(event, name) for name in event.__dataclass_fields__}
                    | {"since": max(event.since, BASE + checkpoint)}
                )
                live = not isinstance(second.register(as_of, now_ms=NOW_MS)[-1], Invalidated)
                for seen, image in enumerate(images[checkpoint:], start=checkpoint + 1):
                    live = live and not second.process(image, now_ms=NOW_MS)
                    if live and seen >= order.read:
                        assert same(query, shown, states[seen]), (name, order, checkpoint, images)
                lived += live
    assert lived > 300
