"""Memory of clock watches: charged to the budget of their cell, and given back in full."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace
from datetime import timedelta
from typing import Any

from quaestor.clock import ClockWatch
from quaestor.model import Registration
from quaestor.planning.moments import Moment, date_of
from quaestor.query.compiled import RECENT
from quaestor.query.regex import ENGINES
from tests.unit.matching.scene import Scene, find

HOUR_MS = 3_600_000


def watched(scene: Scene, number: int, *, lease_ms: int = HOUR_MS) -> Registration:
    """A result of the records of a group that have started."""
    condition = {"group": number, "starts": {"$lte": date_of(scene.now_ms)}}
    clock = {"group": number, "starts": {"$lte": Moment().marked()}}
    registration = scene.registration(replace(find(condition), clock=clock), ())
    known = ClockWatch(scene.now_ms, scene.now_ms + lease_ms // 2, registration.since)
    return replace(registration, watch=known, expires_at_ms=scene.now_ms + lease_ms)


def starting(scene: Scene, number: int, *, key: Any, after_s: int) -> dict[str, Any]:
    return {"_id": key, "group": number, "starts": date_of(scene.now_ms) + timedelta(seconds=after_s)}


def allocated(work: Any) -> int:
    """Bytes that work allocates and keeps, without what the engines' own budget covers."""
    tracemalloc.start()
    try:
        work()
        ENGINES.clear()
        RECENT.clear()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_the_estimate_of_a_watch_is_near_what_it_allocates() -> None:
    """Six hundred watched registrations beside the same registrations without a watch."""
    scene = Scene()
    scene.node.register(watched(scene, -1), now_ms=scene.now_ms)
    plain = [replace(watched(scene, number), watch=None) for number in range(600)]
    timed = [watched(scene, number) for number in range(600, 1_200)]

    def register(registrations: list[Registration]) -> tuple[int, int]:
        before = scene.node.bytes
        size = allocated(lambda: [scene.node.register(each, now_ms=scene.now_ms) for each in registrations])
        return scene.node.bytes - before, size

    estimated, measured = (more - less for more, less in zip(register(timed), register(plain), strict=True))
    assert 0.5 < estimated / measured < 2.0, (estimated / 600, measured / 600)


def test_the_estimate_of_an_instant_that_waits_is_near_what_it_allocates() -> None:
    """A thousand records that start within the lease of one watch, beside the same records without it."""
    sizes, estimates = [], []
    for group in (1, 2):
        scene = Scene()
        scene.node.register(watched(scene, 1), now_ms=scene.now_ms)
        records = [starting(scene, group, key=number, after_s=1_000 + number) for number in range(1_000)]
        scene.insert({"_id": "first", "group": 3})
        before = scene.node.bytes

        def insert(scene: Scene = scene, records: list[dict[str, Any]] = records) -> None:
            for record in records:
                scene.insert(record)

        sizes.append(allocated(insert))
        estimates.append(scene.node.bytes - before)
    assert estimates[1] == 0
    assert 0.6 < estimates[0] / (sizes[0] - sizes[1]) < 2.0, (estimates, sizes)


def test_everything_that_was_charged_is_given_back() -> None:
    """Records that will start, records that are rewritten, and registrations that go."""
    scene = Scene()
    for number in range(20):
        scene.node.register(watched(scene, number), now_ms=scene.now_ms)
        for key in range(10):
            scene.insert(starting(scene, number, key=f"{number}:{key}", after_s=60 + key))
            scene.update(starting(scene, number, key=f"{number}:{key}", after_s=90 + key), exact=True)
    assert scene.node.bytes > 20 * 10 * 400
    scene.now_ms += HOUR_MS
    assert len(scene.node.due(scene.now_ms)) == 20
    assert (scene.node.bytes, scene.node.registrations) == (0, 0)


def test_a_record_that_is_written_again_and_again_takes_room_once() -> None:
    """The wheel drops instants that no longer count."""
    scene = Scene()
    scene.node.register(watched(scene, 1), now_ms=scene.now_ms)
    scene.insert(starting(scene, 1, key="a", after_s=600))
    before = scene.node.bytes
    for number in range(2_000):
        scene.update(starting(scene, 1, key="a", after_s=600 + number % 100), exact=True)
    assert scene.node.bytes == before
    assert len(scene.node._active.watches._wheel) < 200
    assert scene.node.next_due_ms is not None
    scene.now_ms += 699_000
    assert len(scene.node.due(scene.now_ms)) == 1


def test_a_node_evicts_where_watches_fill_its_budget() -> None:
    """The same registrations without watches fit."""
    fits, full = Scene(max_bytes=1_000_000), Scene(max_bytes=1_000_000)
    for number in range(400):
        timed = watched(full, number)
        full.node.register(timed, now_ms=full.now_ms)
        fits.node.register(replace(timed, watch=None), now_ms=fits.now_ms)
    assert fits.node.registrations == 400
    assert full.node.registrations < 400
    assert full.node.bytes <= 1_000_000
