"""Writes of a primary that its successor lacks: a read may have seen them, the change stream never reports them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pymongo
import pytest

from benchmarks.setups.faults.members import ELECTED_S, replica_set
from tests.end_to_end.test_distributed import grid, pages, touch, workers
from tests.support import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(600)]


async def test_an_answer_made_of_a_write_that_was_rolled_back_is_not_served_for_ever(
    redis_url: str, tmp_path: Path, prefix: str
) -> None:
    with (
        replica_set(tmp_path, election_ms=8_000) as members,
        pages(members.url, prefix) as collection,
        grid(members.url, redis_url, prefix),
    ):
        async with workers(members.url, redis_url, prefix, staleness_bound_ms=20_000) as (process, two):
            await eventually(lambda: process.is_hit(0), within_s=60)
            await eventually(lambda: two.is_hit(0), within_s=60)
            primary = members.primary()
            assert primary is not None
            others = members.secondaries()
            for member in others:
                member.kill()
            touch(collection.with_options(write_concern=pymongo.WriteConcern(1)), 1, 1)
            await eventually(lambda: process.is_hit(1))
            assert await process.shows(1, 1)
            assert await two.shows(1, 1)
            primary.kill()
            for member in others:
                member.launch()
            # In a thread: the app processes of this test live on the event loop.
            assert await asyncio.to_thread(members.elected) is not primary
            await asyncio.to_thread(primary.start, ELECTED_S)
            assert collection.find_one({"_id": 1}) == {"_id": 1, "n": 0}, "rolled back"
            await eventually(lambda: process.shows(1, 0), within_s=30)
            await eventually(lambda: two.shows(1, 0), within_s=30)
            await eventually(lambda: process.is_hit(1), within_s=30)
            touch(collection, 1, 2)
            await eventually(lambda: process.shows(1, 2), within_s=30)
            await eventually(lambda: two.shows(1, 2), within_s=30)
