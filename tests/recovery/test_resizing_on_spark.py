"""`quaestor cluster`, then `quaestor cluster resize`, as an operator runs them: two Spark drivers, one succeeds the other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import anyio.to_thread
import httpx
import pymongo
import pytest

from quaestor.clock import system_clock
from quaestor.event_layer.connecting import event_layer
from quaestor.invalidation.grid.resizing.state import get_state
from quaestor.model import GridShape
from quaestor.settings import Settings
from quaestor.testing.servers import free_port
from tests.recovery.test_resizing import App
from tests.support import PATIENT, eventually

pytestmark = [pytest.mark.slow, pytest.mark.anyio]

START_S = 120
STOP_S = 60


@contextmanager
def command(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command in a process of its own; stop it in the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "quaestor.cli", "cluster", *arguments],
        env=os.environ | {"QUAESTOR_STALENESS_BOUND_MS": str(PATIENT["staleness_bound_ms"])},  # what status calls healthy
        text=True, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        _, output = process.communicate(timeout=STOP_S)
        print(output[-2_000:])


@pytest.mark.parametrize("shared_url", ["server", pytest.param("cluster", marks=pytest.mark.slow)], indirect=True)
async def test_a_running_grid_is_resized_from_the_command_line(mongo_url: str, shared_url: str, prefix: str) -> None:
    """The first command ends by itself when the second has taken over; what was cached stays cached until it changes."""
    where = ("--mongo-url", mongo_url, "--redis-url", shared_url, "--deployment", prefix)
    settings = Settings(deployment=prefix, **PATIENT)
    with ExitStack() as opened:
        client = opened.enter_context(pymongo.MongoClient[dict[str, Any]](mongo_url))
        client[prefix]["c"].insert_one({"_id": 1, "a": 1})
        layer = opened.enter_context(closing(event_layer(shared_url, prefix)))
        app = App(layer, client[prefix]["c"], settings)
        app.registry.start()
        opened.callback(app.registry.stop)
        old = opened.enter_context(
            command("--master", "local[3,8]", "--query-partitions", "1", "--write-partitions", "1", *where)
        )
        await eventually(lambda: app.registry.serving(now_ms=system_clock()), within_s=START_S)

        async def cached() -> bool:
            await app.cache(1)
            return app.live(1)

        await eventually(cached)
        shown = ("status", "--json", "--redis-url", shared_url, "--deployment", prefix)
        with command(*shown) as status:
            assert await anyio.to_thread.run_sync(status.wait, STOP_S) == 0
        port = free_port()
        opened.enter_context(
            command(
                "resize", "--master", "local[4,8]", "--query-partitions", "1", "--write-partitions", "2",
                "--metrics-port", str(port), *where,
            )
        )  # fmt: skip
        shape = GridShape(query_partitions=1, write_partitions=2, generation=1)
        await eventually(lambda: app.registry.shape == shape, within_s=START_S)
        assert app.live(1)
        await anyio.to_thread.run_sync(old.wait, STOP_S)
        state = get_state(layer, prefix)
        assert state is not None
        assert (state.serving.shape, state.successor, state.stopped) == (shape, None, False)
        await eventually(lambda: app.registry.serving(now_ms=system_clock()))
        assert app.live(1)
        client[prefix]["c"].insert_one({"_id": 2, "a": 1})
        await eventually(lambda: not app.live(1))
        assert app.resets == []

        async def scraped() -> bool:
            async with httpx.AsyncClient() as scraper:
                samples = (await scraper.get(f"http://127.0.0.1:{port}/metrics")).text
            return all(
                f"quaestor_{line}\n" in samples
                for line in ("grid_generation 1.0", "grid_cells_ready 2.0", 'cell_restarts{column="0",row="1"} 0.0')
            )

        await eventually(scraped)
