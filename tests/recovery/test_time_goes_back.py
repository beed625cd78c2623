"""The time of a database goes back: restored files, another process behind the address. All that was read before is dead."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
import httpx
import pymongo
import pytest
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import Quaestor
from quaestor.clock import system_clock
from quaestor.event_layer import streams
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.middleware import QuaestorMiddleware
from quaestor.model import Activated, Cell, GridShape, Operation, Query, Refused, Registration, WriteKind
from tests.end_to_end.test_distributed import grid, workers
from tests.recovery.ingesting import Client, Pipelines, ingesting
from tests.recovery.older_copy import AgingMongod, aging_mongod
from tests.support import PATIENCE_S, PATIENT, eventually

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def aging(tmp_path: Path, prefix: str) -> Iterator[AgingMongod]:
    with aging_mongod(tmp_path, prefix, "pages") as made:
        yield made


def test_a_restart_on_older_files_is_a_gap_above_everything_delivered(aging: AgingMongod, prefix: str) -> None:
    layer = MemoryEventLayer()
    with (
        pymongo.MongoClient[dict[str, Any]](aging.url, serverSelectionTimeoutMS=500) as client,
        ingesting(client, layer, prefix) as pipelines,
    ):
        before = len(pipelines.until(lambda images: len(images) >= 1))
        aging.go_back()
        images = pipelines.until(lambda images: any(image.kind is WriteKind.GAP for image in images[before:]))
        gap = next(image for image in images[before:] if image.kind is WriteKind.GAP)
        assert all(image.version < gap.version for image in images[: images.index(gap)])
        with aging.pages() as pages:
            pages.update_one({"_id": 3}, {"$set": {"n": 7}})
        pipelines.until(lambda images: any(image.key == 3 and image.version > gap.version for image in images))


@pytest.mark.anyio
async def test_embedded_answers_of_the_later_state_end(aging: AgingMongod, prefix: str) -> None:
    quaestor, app = Quaestor(mongo_url=aging.url, **PATIENT), FastAPI()
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
        aging.url, event_listeners=[quaestor.capture], serverSelectionTimeoutMS=int(1_000 * PATIENCE_S)
    )
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)

    @app.get("/pages/{key}")
    async def page(key: int) -> dict[str, Any] | None:
        return await client[prefix].pages.find_one({"_id": key})

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site") as http:

        async def hit(n: int) -> bool:
            answer = await http.get("/pages/0")
            return "; hit" in answer.headers.get("cache-status", "") and answer.json()["n"] == n

        await eventually(lambda: hit(1))
        aging.go_back()
        await eventually(lambda: hit(0))
        with aging.pages() as pages:
            pages.update_one({"_id": 0}, {"$set": {"n": 2}})
        await eventually(lambda: hit(2))
    await quaestor.stop()
    await client.close()


@pytest.mark.anyio
@pytest.mark.slow
async def test_on_a_grid_answers_of_the_later_state_end_in_every_process(
    aging: AgingMongod, redis_url: str, prefix: str
) -> None:
    with grid(aging.url, redis_url, prefix):
        async with workers(aging.url, redis_url, prefix, staleness_bound_ms=20_000) as (process, two):
            for worker in (process, two):
                await eventually(lambda worker=worker: worker.is_hit(0), within_s=60)
                assert await worker.shows(0, 1)
            aging.go_back()
            for worker in (process, two):
                await eventually(lambda worker=worker: worker.shows(0, 0), within_s=30)
                await eventually(lambda worker=worker: worker.is_hit(0), within_s=30)
            with aging.pages() as pages:
                pages.update_one({"_id": 0}, {"$set": {"n": 2}})
            for worker in (process, two):
                await eventually(lambda worker=worker: worker.shows(0, 2), within_s=30)


@pytest.mark.slow
def test_until_time_has_reached_what_was_delivered_nothing_is_accepted_and_then_another_gap_ends_the_wait(
    client: Client, prefix: str
) -> None:
    """The clock of the restored machine is behind. A token of the future would make the server skip every write until then."""
    layer = MemoryEventLayer()
    future = (int(time.time()) + 3) << 32
    saved = {"v": 1, "token": None, "version": future, "database": None}
    layer.put(streams.resume_position(prefix), bson.encode(saved))
    with ingesting(client, layer, prefix) as pipelines:
        first = pipelines.until(lambda images: len(images) >= 1)[0]
        assert (first.kind, first.version) == (
            WriteKind.GAP,
            future + 1,
        )  # earlier releases may have had a gap just behind
        assert first.wall_ms <= system_clock()
        client[prefix].plain.insert_one({"_id": 1})
        second = pipelines.until(lambda images: sum(image.kind is WriteKind.GAP for image in images) >= 2)[-1]
    written = next(image for _, image in pipelines.images if image.key == 1)
    assert written.version < first.version < second.version
    _accepted_only_after_the_second_gap(pipelines, written.version, first.version, second.version, prefix)


def _accepted_only_after_the_second_gap(
    pipelines: Pipelines, read_at: int, future: int, reached: int, prefix: str
) -> None:
    shape, now_ms = GridShape(query_partitions=1, write_partitions=1), system_clock()
    node = MatchingNode(Cell(query_partition=0, write_partition=0), shape, retention_ms=60_000)
    for _, image in pipelines.images:
        node.process(image, now_ms=now_ms)
        since = min(node.watermark, read_at)  # a process asks for no more than its read has seen
        assert isinstance(_outcome(node, since, prefix, now_ms), Refused)
    assert isinstance(_outcome(node, future, prefix, now_ms), Refused)
    assert isinstance(_outcome(node, reached, prefix, now_ms), Activated)


def _outcome(node: MatchingNode, since: int, prefix: str, now_ms: int) -> Any:
    query = Query(namespace=f"{prefix}.plain", operation=Operation.FIND, filter={"n": 1})
    registration = Registration(
        id=f"r{since}", tenant=prefix, query_id="q", query=query, since=since, read_at=since, members=(), last=None,
        expires_at_ms=now_ms + 60_000,
    )  # fmt: skip
    return node.register(registration, now_ms=now_ms)[-1]
