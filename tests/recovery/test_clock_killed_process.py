"""A process of `quaestor grid` that watches the clock for a cached answer is killed by SIGKILL before the instant."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from quaestor import Now
from quaestor.event_layer.connecting import event_layer
from quaestor.invalidation.grid.cell_processes import cell_pids
from quaestor.model import Cell
from tests.examples.started import process
from tests.inputs.test_timed_answers import FILTERS, shop
from tests.support import PATIENT, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
STARTS_IN = timedelta(seconds=12)
BOUND = timedelta(milliseconds=PATIENT["staleness_bound_ms"])
"""An answer is served for so long after the last proof of its cell."""
CELL = Cell(query_partition=0, write_partition=0)


async def test_an_article_enters_at_its_instant_although_the_watching_process_was_killed(
    mongo_url: str, redis_url: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is cached first, then the article is scheduled, then the cell's process dies. No answer is late."""
    monkeypatch.setitem(FILTERS, "starts", lambda: {"starts": {"$lte": Now()}})
    grid = [sys.executable, "-m", "quaestor.cli", "grid", "--ready-timeout", "240"]
    where = {"MONGO_URL": mongo_url, "REDIS_URL": redis_url, "QUAESTOR_DEPLOYMENT": prefix}
    with (
        process(tmp_path, "grid", grid, ready=lambda server: "ingest running" in server.log_tail(), **where),
        closing(event_layer(redis_url, prefix)) as layer,
    ):
        async with shop(mongo_url, prefix, "starts", redis_url=redis_url, deployment=prefix) as made:
            made.offers.insert_one({"_id": "always", "starts": datetime(2000, 1, 1)})
            await eventually(made.hit, within_s=60)
            starts = (datetime.now(UTC) + STARTS_IN).replace(microsecond=0)
            made.offers.insert_one({"_id": "soon", "starts": starts})
            await made.quaestor.settled(within_s=30)
            killed = cell_pids(layer, prefix)[CELL]
            os.kill(killed, signal.SIGKILL)
            end_s = time.monotonic() + 90
            while True:
                before = datetime.now(UTC)
                found, _, _ = await made.get()
                after = datetime.now(UTC)
                if found == ["always", "soon"]:
                    assert after >= starts
                    break
                assert before < starts + BOUND, "the article is late"
                assert time.monotonic() < end_s, found
            await eventually(made.hit, within_s=90)
            assert (await made.get())[0] == ["always", "soon"]
            assert cell_pids(layer, prefix)[CELL] != killed
