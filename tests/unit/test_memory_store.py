"""The memory level: never above its budget, and popular entries are not driven out by pages without a second request."""

from __future__ import annotations

import random
import statistics
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from quaestor.model import CachedResponse
from quaestor.store.memory import MemoryStore, size_bytes
from quaestor.store.memory_admission import WINDOW_SHARE

HOT = [f"hot {n}" for n in range(50)]


def entry(key: str, body: bytes = b"x" * 1000) -> CachedResponse:
    return CachedResponse(
        key=key, status=200, headers=(), body=body, etag=b'"e"', stored_at_ms=0, fresh_until_ms=1,
        registrations=(f"o:{key}",), tags=("t",), resource=key,
    )  # fmt: skip


def ask(store: MemoryStore, key: str) -> bool:
    """As the read path does: look, and store what was not there. Whether it was a hit."""
    if store.resident(key) is not None:
        return True
    store.keep(entry(key))
    return False


def share_of_hits(store: MemoryStore, keys: list[str]) -> float:
    return sum(store.resident(key) is not None for key in keys) / len(keys)


def test_a_scan_of_pages_nobody_asks_for_twice_does_not_flush_the_hot_ones() -> None:
    """A crawler walks through a hundred times what fits, while the hot pages are asked for now and then."""
    store = MemoryStore(budget_bytes=100 * size_bytes(entry("hot 00")))
    chance = random.Random(1)
    for _ in range(2_000):
        ask(store, chance.choice(HOT))
    hits = lookups = 0
    for n in range(10_000):
        ask(store, f"scan {n}")
        if n % 4 == 0:
            lookups += 1
            hits += ask(store, chance.choice(HOT))
    assert hits / lookups > 0.95, (
        "an LRU of this size finds none of them: 100 others pass between two calls for the same"
    )
    assert share_of_hits(store, HOT) > 0.9


def test_newly_popular_entries_take_the_place_of_formerly_popular_ones() -> None:
    """Popularity is counted in a sketch that hashes by chance. Where so little is kept, one store in two hundred counts some
    of the new pages together with old ones for long; so this asks several."""
    chance = random.Random(2)
    new = [f"new {n}" for n in range(50)]
    shares = []
    for _ in range(15):
        store = MemoryStore(budget_bytes=60 * size_bytes(entry("hot 00")))
        for _ in range(3_000):
            ask(store, chance.choice(HOT))
        for _ in range(20_000):
            ask(store, chance.choice(new))
        shares.append(share_of_hits(store, new))
    assert statistics.median(shares) > 0.9


def test_entries_that_fit_into_the_window_all_stay() -> None:
    """A process with few entries keeps each of them; the main part begins when the first entry has to leave the window."""
    store = MemoryStore(budget_bytes=WINDOW_SHARE * 100 * size_bytes(entry("page 00")))
    for _ in range(3):
        for n in range(100):
            ask(store, f"page {n:02}")
    assert share_of_hits(store, [f"page {n:02}" for n in range(100)]) == 1


def test_a_page_just_stored_is_there_for_the_requests_that_waited_for_it() -> None:
    """The page is kept even if nothing in memory is less popular, because the waiting requests come at once."""
    store = MemoryStore(budget_bytes=100 * size_bytes(entry("hot 00")))
    chance = random.Random(3)
    for _ in range(5_000):
        ask(store, chance.choice([*HOT, *(f"{name}x" for name in HOT)]))
    for n in range(100):
        store.keep(entry(f"new {n}"))
        assert store.resident(f"new {n}") is not None


def test_one_enormous_entry_does_not_drive_out_what_is_popular() -> None:
    entry_bytes = size_bytes(entry("hot 00"))
    store = MemoryStore(budget_bytes=100 * entry_bytes)
    for _ in range(20):
        for n in range(90):
            ask(store, f"hot {n}")
    store.keep(entry("enormous", b"x" * 80 * entry_bytes))
    assert share_of_hits(store, [f"hot {n}" for n in range(90)]) > 0.95


@settings(max_examples=60, deadline=None)
@given(
    budget=st.integers(2_000, 60_000),
    steps=st.lists(st.tuples(st.sampled_from("kdgr"), st.integers(0, 12), st.integers(0, 30_000)), max_size=80),
)
def test_the_budget_holds_and_nothing_leaks(budget: int, steps: list[tuple[str, int, int]]) -> None:
    """After any sequence of keeping, dropping, finding and invalidating, the used bytes equal the entries' sizes,
    within the budget.
    """
    store = MemoryStore(budget_bytes=budget)
    sizes: dict[str, int] = {}
    for what, n, body in steps:
        key = f"k{n}"
        if what == "k":
            store.keep(entry(key, b"x" * body))
            sizes[key] = size_bytes(entry(key, b"x" * body))
        elif what == "d":
            store.drop(key)
        elif what == "g":
            for gone in store.drop_guarded([f"o:{key}", "o:404"]):
                assert gone.key == key
            assert store.resident(key) is None
        else:
            store.resident(key)
        there = [name for name in sizes if store.resident(name) is not None]
        assert store.used_bytes == sum(sizes[name] for name in there) <= budget
        assert len(store) == len(there) == len(store._guarded)
    store.drop_all()
    assert (store.used_bytes, len(store), len(store._guarded)) == (0, 0, 0)


def test_a_guard_of_several_entries_takes_all_of_them_along() -> None:
    store = MemoryStore(budget_bytes=1_000_000)
    shared = [replace(entry(key), registrations=(f"o:{key}", "o:shared")) for key in "abc"]
    for entry_ in shared:
        store.keep(entry_)
    store.drop("b")
    assert {gone.key for gone in store.drop_guarded(["o:shared"])} == {"a", "c"}
    assert (len(store), len(store._guarded)) == (0, 0)


def instructions(action: Callable[[], object]) -> int:
    """How many of Python's instructions an action takes."""
    counted = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal counted
        frame.f_trace_opcodes = True
        counted += event == "opcode"
        return trace

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 looks for it when tracing begins
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return counted


def allocated(action: Callable[[], object]) -> int:
    """Bytes that an action takes at most at a time."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        action()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_an_entry_costs_the_same_however_many_its_registration_guards() -> None:
    """Query strings that do not matter to the query share its registration: anybody can make as many entries as he likes."""
    costs: dict[int, tuple[int, ...]] = {}
    for already in (30, 20_000):
        store = MemoryStore(budget_bytes=10**9)
        for n in range(already):
            store.keep(replace(entry(f"k{n}"), registrations=("o:shared",)))
        more = [replace(entry(f"more{n}"), registrations=("o:shared",)) for n in range(40)]
        kept = [allocated(partial(store.keep, kept)) for kept in more[:20]]
        came = [instructions(partial(store.keep, kept)) for kept in more[20:]]
        left = [instructions(partial(store.drop, write.key)) for write in more]
        costs[already] = min(kept), min(came), min(left)
        assert len(store.drop_guarded(["o:shared"])) == already
    few, many = costs.values()
    assert all(there <= 2 * here + 50 for here, there in zip(few, many, strict=True)), costs
