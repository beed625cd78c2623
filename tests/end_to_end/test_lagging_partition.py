"""A query partition that lags: its own queries go to the handlers until it has caught up, the others are answered from the cache.

Real servers, two app processes' worth of Quaestor, a grid of two columns in threads; the bound is wide enough for a busy machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from pymongo.collection import Collection

from quaestor.invalidation.registry.registration_ids import partition_of
from quaestor.model import GridShape
from tests.end_to_end.test_distributed import Worker, grid, pages, touch, workers
from tests.support import eventually

pytestmark = pytest.mark.anyio

BOUND_MS = 5_000
KEYS = range(20)
ROUNDS = 4
LAGGING = 1
"""The column with a stopped cell."""
VICTIM = f"{LAGGING}x0"
UNDIVIDED = GridShape(query_partitions=1, write_partitions=1)
DIVIDED = GridShape(query_partitions=2, write_partitions=1, generation=1)


@contextmanager
def twenty_pages(mongo_url: str, database: str) -> Iterator[Collection[dict[str, Any]]]:
    """Insert so many pages that both columns have some."""
    with pages(mongo_url, database) as collection:
        collection.insert_many([{"_id": key, "n": 0} for key in KEYS[10:]])
        yield collection


def registrations(worker: Worker, key: int) -> tuple[str, ...]:
    """Return the registrations that guard the page that this worker has in memory."""
    resident = worker.quaestor.read_path.store.resident(f"http://site/pages/{key}")
    assert resident is not None
    return resident.response.registrations


def by_column(worker: Worker) -> tuple[list[int], list[int]]:
    """The keys whose pages column 0 of two guards, and those of column 1."""
    columns: tuple[list[int], list[int]] = ([], [])
    for key in KEYS:
        (column,) = {partition_of(registration, 2) for registration in registrations(worker, key)}
        assert column is not None
        columns[column].append(key)
    assert all(columns)
    return columns


async def are_hits(made: Sequence[Worker], keys: Iterable[int]) -> None:
    """Returns when each was answered from each worker's cache."""
    for worker in made:
        for key in keys:
            await eventually(lambda key=key, worker=worker: worker.is_hit(key))  # type: ignore[misc]


async def show(made: Sequence[Worker], keys: Iterable[int], n: int) -> None:
    for worker in made:
        for key in keys:
            await eventually(lambda key=key, worker=worker: worker.shows(key, n))  # type: ignore[misc]


async def lags(made: Sequence[Worker]) -> None:
    """Returns when every process has noticed."""
    for worker in made:
        registry, clock = worker.quaestor.registry, worker.quaestor.read_path.clock
        await eventually(
            lambda registry=registry, clock=clock: registry.lagging_partitions(now_ms=clock()) == [LAGGING]
        )  # type: ignore[misc]


async def not_from_cache(made: Sequence[Worker], keys: Iterable[int], n: int) -> None:
    """At once, not eventually: nothing old is shown while the column lags."""
    for worker in made:
        for key in keys:
            page, how = await worker.get(key)
            assert (page["n"], how != "hit") == (n, True), (key, how)


async def sketch_is(worker: Worker, status: int) -> bool:
    return (await worker.http.get("/quaestor/sketch")).status_code == status


def metric(worker: Worker, name: str, **labels: str) -> float:
    return worker.quaestor.telemetry.families.registry.get_sample_value(f"quaestor_{name}", labels) or 0.0


async def test_a_stopped_cell_stops_the_queries_of_its_column_alone(
    mongo_url: str, redis_url: str, prefix: str
) -> None:
    with twenty_pages(mongo_url, prefix) as collection, grid(mongo_url, redis_url, prefix) as running:
        async with workers(mongo_url, redis_url, prefix, staleness_bound_ms=BOUND_MS) as made:
            first = made[0]
            await are_hits(made, KEYS)
            kept, stopped = by_column(first)
            await eventually(lambda: sketch_is(first, 200))
            running.stop(VICTIM)
            await lags(made)
            for n in range(1, ROUNDS):
                for key in KEYS:
                    touch(collection, key, n)
                await not_from_cache(made, stopped, n)
                await show(made, kept, n)
                await are_hits(made, kept)
                await show(made, kept, n)
            assert await sketch_is(first, 503), "it holds nothing of what the stopped cell would have said"
            await eventually(lambda: metric(first, "column_lag_ms", column=str(LAGGING)) > BOUND_MS)
            assert metric(first, "uncacheable_total", reason="lagging") > 0
            assert metric(first, "misses_total", reason="lagging") > 0
            await eventually(lambda: metric(first, "serving") == 1)
            running.start(VICTIM)
            await are_hits(made, KEYS)
            await show(made, KEYS, ROUNDS - 1)
            await eventually(lambda: sketch_is(first, 200))
            for key in KEYS:
                touch(collection, key, ROUNDS)
            await show(made, KEYS, ROUNDS)


async def test_unchanged_answers_come_back_as_they_were(mongo_url: str, redis_url: str, prefix: str) -> None:
    """An entry whose column lags is not thrown away: when the column has caught up it is as good as before."""
    with twenty_pages(mongo_url, prefix), grid(mongo_url, redis_url, prefix) as running:
        async with workers(mongo_url, redis_url, prefix, 1, staleness_bound_ms=BOUND_MS) as made:
            await are_hits(made, KEYS)
            _, stopped = by_column(made[0])
            before = {key: registrations(made[0], key) for key in stopped}
            running.stop(VICTIM)
            await lags(made)
            await not_from_cache(made, stopped, 0)
            assert {key: registrations(made[0], key) for key in stopped} == before
            running.start(VICTIM)
            await are_hits(made, stopped)
            after = {key: registrations(made[0], key) for key in stopped}
            assert before.items() & after.items(), "one whose handler was running at that moment was stored anew"


async def test_ids_made_before_a_resize_belong_to_the_columns_after_it(
    mongo_url: str, redis_url: str, prefix: str
) -> None:
    with twenty_pages(mongo_url, prefix) as collection, grid(mongo_url, redis_url, prefix, UNDIVIDED) as old:
        async with workers(mongo_url, redis_url, prefix, staleness_bound_ms=BOUND_MS) as made:
            await are_hits(made, KEYS)
            kept, stopped = by_column(made[0])
            before = {key: registrations(made[0], key) for key in KEYS}
            with grid(mongo_url, redis_url, prefix, DIVIDED, UNDIVIDED) as new:
                for worker in made:
                    await eventually(lambda worker=worker: worker.quaestor.registry.shape == DIVIDED)  # type: ignore[misc]
                for part in old.parts:
                    old.stop(part)
                await are_hits(made, KEYS)
                assert {key: registrations(made[0], key) for key in KEYS} == before, "taken over"
                new.stop(VICTIM)
                await lags(made)
                for key in KEYS:
                    touch(collection, key, 1)
                await not_from_cache(made, stopped, 1)
                await show(made, kept, 1)
                await are_hits(made, kept)
                new.start(VICTIM)
                await are_hits(made, KEYS)
                await show(made, KEYS, 1)
