"""A running app records a trace that the simulator replays, and takes up other parameters while it runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import httpx
import pymongo
import pytest
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import Quaestor
from quaestor.cli import main
from quaestor.middleware import QuaestorMiddleware
from quaestor.runtime import services
from quaestor.simulation.comparison import production
from quaestor.simulation.simulate import System, simulated
from quaestor.simulation.workload import recorded
from quaestor.ttl.chosen import ChosenEstimators
from quaestor.ttl.parameters import TtlParameters, Tuning
from quaestor.ttl.trace_format import Changed, Filled, Served, read
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main.main(list(arguments))
    return int(ended.value.code or 0)


async def test_a_real_app_records_what_is_read_and_what_changes(mongo_url: str, prefix: str, tmp_path: Path) -> None:
    """A fill, its hits, the write that ends it, the next fill: in the file when the app has ended, and replayed from there."""
    quaestor = Quaestor(trace_file=str(tmp_path / "trace-{pid}"), **PATIENT)
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
    app = FastAPI()
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)

    @app.get("/items")
    async def items() -> list[dict[str, Any]]:
        return await client[prefix].items.find({"open": True}).sort("_id").to_list()

    with pymongo.MongoClient[dict[str, Any]](mongo_url) as writer:
        writer[prefix].items.insert_many([{"_id": i, "open": True} for i in range(3)])
        await quaestor.start()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site") as http:

            async def hit() -> bool:
                return "; hit" in (await http.get("/items")).headers.get("cache-status", "")

            async def two_are_left() -> bool:
                return len((await http.get("/items")).json()) == 2 and await hit()

            await eventually(hit)
            writer[prefix].items.update_one({"_id": 1}, {"$set": {"open": False}})
            await eventually(two_are_left)
            path = tmp_path / f"trace-{os.getpid()}"
            await eventually(lambda: path.exists() and '["s",' in path.read_text())
        await quaestor.stop()
        await client.close()
        writer.drop_database(prefix)
    trace = read(path)
    kinds = {type(record) for record in trace.records}
    assert {Filled, Served, Changed} <= kinds
    filled = [record for record in trace.records if isinstance(record, Filled)]
    assert len(filled) >= 2
    assert {record.kind for record in filled} == {f"{prefix}.items:find"}
    assert len({record.result for record in filled}) == 1
    figures = simulated(recorded(trace, clients=3, seed=1), production(TtlParameters()), System())
    assert figures.requests >= 3
    assert figures.invalidations_hz > 0


async def test_parameters_are_applied_and_rolled_back_while_the_app_runs(
    redis_url: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line changes parameters without a restart; the slower of two users is refused, and the settings count
    again in the end.
    """
    monkeypatch.setattr(services, "_TUNED_EVERY_S", 0.05)
    quaestor = Quaestor(redis_url=redis_url, deployment=prefix, grid=False, explicit=True, ttl_quantile=0.4)
    estimator = quaestor.parts.estimator
    assert isinstance(estimator, ChosenEstimators)
    chosen = tmp_path / "lifetimes.json"
    chosen.write_text(TtlParameters(default=Tuning(quantile=0.7)).encoded())
    where = ("--redis-url", redis_url, "--deployment", prefix)

    def quantile() -> float:
        return estimator.parameters.default.quantile

    await quaestor.start()
    try:
        assert call("ttl", "rollback", *where) == 2
        assert "nothing was applied" in capsys.readouterr().err
        assert call("ttl", "apply", str(chosen), "--on", "0", "--by", "ann", *where) == 0
        await eventually(lambda: quantile() == 0.7)
        assert call("ttl", "apply", str(chosen), "--on", "0", "--by", "bob", *where) == 2
        assert "ann has applied other parameters" in capsys.readouterr().err
        chosen.write_text('{"default": {"quantile": 7}}')
        assert call("ttl", "apply", str(chosen), "--on", "1", *where) == 2
        assert "quantile must lie in" in capsys.readouterr().err
        assert call("ttl", "rollback", "--by", "bob", *where) == 0
        await eventually(lambda: quantile() == 0.4)
        capsys.readouterr()
        assert call("ttl", "history", *where) == 0
        assert [line.split(" by ")[1].split(":")[0] for line in capsys.readouterr().out.splitlines()] == [
            "-",
            "ann",
            "bob",
        ]
    finally:
        await quaestor.stop()
