"""Filters of subscribed queries in a cell: compiled when the query is announced, so that no write waits for a compilation."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import pytest

from quaestor.incremental import PriorState
from quaestor.query.compile import compile_node
from quaestor.query.compiled import RECENT
from quaestor.query.parse import parse
from quaestor.rest.access import Access, Principal
from quaestor.rest.rights import Rights
from tests.unit.matching.scene import NAMESPACE, Scene, find

FAR_MS: Final = 10**15
QUERIES: Final = 30
COMPILING: Final = {function.__code__: function.__name__ for function in (compile_node, parse)}
LARGE: Final = list(range(1_000))

RIGHTS: Final = Rights(Access.public_read(), Principal(user=None))

Condition = Callable[[int], dict[str, Any]]
SMALL: Final[dict[str, Condition]] = {
    "equality": lambda number: {"k": number},
    "conjunction": lambda number: {"k": number, "n": {"$gte": 0}},
    "closed range": lambda number: {"k": {"$gte": number, "$lt": number + 1}},
    "open range": lambda number: {"k": {"$gt": number}},
    "disjunction": lambda number: {"$or": [{"k": number}, {"m": number}]},
    "no index": lambda number: {"k": {"$ne": number}},
    "pattern": lambda number: {"s": {"$regex": f"k{number}x"}},
    "back reference": lambda number: {"k": number, "s": {"$regex": rf"(k){number}x|\\1"}},
    "expression": lambda number: {"k": number, "$expr": {"$gte": ["$n", {"$subtract": [number, 1]}]}},
    "schema": lambda number: {"k": number, "$jsonSchema": {"properties": {"n": {"minimum": number - 1}}}},
    "rules of records": lambda number: dict(RIGHTS.guarded({"k": number, "tag": {"$ne": "x" * 200}}, "read")),
}


@contextmanager
def compilations() -> Iterator[Counter[str]]:
    """Count the filters that are parsed and compiled in this thread during the block."""
    counts: Counter[str] = Counter()

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in COMPILING:
            counts[COMPILING[frame.f_code]] += 1

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield counts
    finally:
        sys.setprofile(before)


def announce(scene: Scene, name: str, condition: dict[str, Any]) -> None:
    """Announce a query without members."""
    scene.node.subscriptions.announce(
        name,
        "token",
        find(condition),
        prior_state=PriorState.MEMBERSHIP,
        version=scene.version,
        members=[b""],
        expires_at_ms=FAR_MS,
    )


def record(number: int, **rest: Any) -> dict[str, Any]:
    """Record that the condition of this number matches, whatever its kind."""
    return {"_id": number, "k": number + ("m" in rest), "n": number, "s": f"k{number}x"} | rest


def concerned(scene: Scene, written: dict[str, Any]) -> tuple[str, ...]:
    """The subscribed queries that the insert of a record concerns."""
    scene.insert(written)
    return scene.node.subscriptions.take()


@pytest.mark.parametrize("kind", SMALL)
def test_the_first_writes_to_distinct_queries_compile_nothing(kind: str) -> None:
    """Every query is announced, then each has its first write. Other filters are compiled meanwhile, as for other cells."""
    scene = Scene()
    with compilations() as announced:
        for number in range(QUERIES):
            announce(scene, str(number), SMALL[kind](number))
    assert announced["compile_node"] >= QUERIES, "the counter counts"
    RECENT.clear()
    with compilations() as written:
        hits = [concerned(scene, record(number)) for number in range(QUERIES)]
    assert written == Counter()
    assert any(hits), "the writes concern queries"


def test_a_large_filter_is_compiled_by_its_first_write() -> None:
    """Its compiled form takes many times its size. One that every write tries is compiled at once."""
    scene = Scene()
    announce(scene, "indexed", {"k": {"$in": LARGE}})
    with compilations() as first:
        assert concerned(scene, record(5)) == ("indexed",)
    assert first == Counter(parse=1, compile_node=1)
    announce(scene, "broad", {"k": {"$nin": LARGE}})
    with compilations() as every:
        assert concerned(scene, record(6, k=-1)) == ("broad",)
    assert every == Counter()


def test_a_subscribed_query_keeps_its_form_when_others_give_way() -> None:
    """A cell keeps the forms of so many other filters only, one here. A large form of a subscribed query gives way too."""
    scene = Scene()
    scene.node._predicates.most = 1
    announce(scene, "small", {"k": 1})
    announce(scene, "large", {"k": {"$in": LARGE}})
    for number in range(5, 8):
        scene.register(find({"k": number}))
    with compilations() as alternating:
        for number in (5, 6, 7):
            assert concerned(scene, record(number)) == ("large",)
    assert alternating["parse"] > 4, "forms gave way, and were compiled again"
    with compilations() as kept:
        concerned(scene, record(1, k=-1))
        scene.update(record(5, k=1))
    assert kept["parse"] <= 1, "only the large form"


def test_the_end_of_a_subscribed_query_gives_its_form_back() -> None:
    """The cached result with the same filter compiles it again at need."""
    scene = Scene()
    scene.register(find({"k": 1}), expires_in_ms=FAR_MS)
    announce(scene, "s", {"k": 1})
    (item,) = scene.node.subscriptions._namespaces[NAMESPACE].filters.values()
    assert item.matches is not None
    scene.node.subscriptions.end("s")
    assert item.matches is None
    assert scene.node.subscriptions.held_bytes == 0
