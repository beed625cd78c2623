"""Continuous queries that an application declares on its functions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quaestor import ConfigurationError, Quaestor
from quaestor.continuous.delivery.batch import ResultBatch
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.schema import Column, Schema, Type
from tests.support import eventually

pytestmark = pytest.mark.anyio


async def test_a_declared_function_receives_results_while_the_application_runs(tmp_path: Path) -> None:
    """The supervisor of the runtime owns the service; rows of before the first start do not count."""
    quaestor = Quaestor(grid=False, continuous_folder=str(tmp_path))
    batches: asyncio.Queue[ResultBatch] = asyncio.Queue()

    @quaestor.continuous("SELECT id FROM orders", every="1s")
    async def new_orders(batch: ResultBatch) -> None:
        await batches.put(batch)

    orders = Catalogue(tmp_path).create("orders", Schema((Column("id", Type.BIGINT),)))
    orders.append([{"id": 1}])
    await quaestor.start()
    try:
        async with asyncio.timeout(100):
            await eventually(lambda: "results.new_orders" in Catalogue(tmp_path).names())
            await asyncio.to_thread(orders.append, [{"id": 2}])
            batch = await batches.get()
        assert "continuous" in {report.name for report in quaestor.services()}
    finally:
        await quaestor.stop()
    assert (batch.query, [row["id"] for row in batch.rows]) == ("new_orders", [2])


async def test_a_declaration_without_a_folder_is_refused_at_the_start() -> None:
    quaestor = Quaestor(grid=False)
    quaestor.continuous("SELECT 1", every="1s", name="orders")(asyncio.Queue().put)
    with pytest.raises(ConfigurationError, match="'orders' needs a folder: set continuous_folder"):
        await quaestor.start()
