"""`quaestor cluster` and `quaestor cluster status`: what they refuse, and what they show of what cells say."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from quaestor.cli import cluster_status, main
from quaestor.event_layer import codec, streams
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.grid.cell_processes import Announcement, cell_pids
from quaestor.invalidation.grid.resizing.state import GridState, Run, put_state
from quaestor.invalidation.grid.spark import configuration, home
from quaestor.model import Cell, GridShape, Heartbeat

NOW_MS = 1_700_000_000_000
URLS = ("--mongo-url", "mongodb://127.0.0.1:1", "--redis-url", "redis://127.0.0.1:1")


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main.main(list(arguments))
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (
            ["--master", "local[2,8]", "--query-partitions", "2", "--write-partitions", "2"],
            ["has 2 slots", "4 cells", "need"],
        ),
        (["--master", "local[8]"], ["master 'local[8]'", "use"]),
        (["--master", "local[8,1]"], ["never restarts a task"]),
        (["--master", "local-cluster[1,1,512]"], ["has 1 slots", "need"]),
        (["--conf", "spark.archives"], ["'spark.archives'", "spark.name=value"]),
        (["--conf", "spark.speculation=true"], ["spark.speculation", "leave it out"]),
    ],
)
def test_a_cluster_that_cannot_hold_the_grid_is_refused_in_a_sentence(
    arguments: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("cluster", *URLS, *arguments) == 2
    output = capsys.readouterr().err
    assert len(output.splitlines()) == 1
    for part in parts:
        assert part in output


def test_missing_requirements_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for variable in ("MONGO_URL", "REDIS_URL"):
        monkeypatch.delenv(variable, raising=False)
    assert call("cluster", "--master", "local[50,8]") == 2
    assert "REDIS_URL" in capsys.readouterr().err
    assert call("cluster", "status") == 2
    assert "REDIS_URL" in capsys.readouterr().err
    assert call("cluster", "status", "--redis-url", "redis://127.0.0.1:1") == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def beat(column: int, row: int, *, fresh_as_of_ms: int, shape: GridShape) -> bytes:
    return codec.encode_notification(
        Heartbeat(
            cell=Cell(query_partition=column, write_partition=row), shape=shape, at_ms=NOW_MS - 10,
            fresh_as_of_ms=fresh_as_of_ms, watermark=7, registrations=3, writes=5,
        )
    )  # fmt: skip


def test_a_cell_that_is_silent_or_behind_makes_the_grid_unhealthy() -> None:
    layer = MemoryEventLayer(clock=lambda: NOW_MS - 10)
    shape = GridShape(query_partitions=1, write_partitions=2)
    assert cluster_status.look(layer, "d", now_ms=NOW_MS).shape is None
    assert "start one" in cluster_status.text(cluster_status.look(layer, "d", now_ms=NOW_MS))
    layer.append(streams.heartbeats("d"), [beat(0, 0, fresh_as_of_ms=NOW_MS - 200, shape=shape)])
    half = cluster_status.look(layer, "d", now_ms=NOW_MS)
    assert [cell.lag_ms for cell in half.cells] == [200, None]
    assert not half.healthy(2_000)
    assert "silent" in cluster_status.text(half)
    layer.append(streams.heartbeats("d"), [b"unreadable", beat(0, 1, fresh_as_of_ms=NOW_MS - 900, shape=shape)])
    whole = cluster_status.look(layer, "d", now_ms=NOW_MS)
    assert (whole.healthy(2_000), whole.healthy(500)) == (True, False)
    decoded = json.loads(cluster_status.to_json(whole))
    assert (decoded["shape"], [cell["lag_ms"] for cell in decoded["cells"]]) == ([1, 2], [200, 900])


def test_a_cells_process_says_the_how_many_th_it_is() -> None:
    layer = MemoryEventLayer(clock=lambda: NOW_MS - 10)
    shape = GridShape(query_partitions=1, write_partitions=1)
    cell = Cell(query_partition=0, write_partition=0)
    layer.append(streams.heartbeats("d"), [beat(0, 0, fresh_as_of_ms=NOW_MS - 200, shape=shape)])

    def restarts() -> int | None:
        return cluster_status.look(layer, "d", now_ms=NOW_MS).cells[0].restarts

    assert restarts() is None
    put_state(layer, "d", GridState(serving=Run(run="first", shape=shape)))
    for expected in (0, 1, 2):
        process = Announcement(layer, "d", cell, shape, run="first")
        process.make()
        process.make()
        assert restarts() == expected
    assert cluster_status.text(cluster_status.look(layer, "d", now_ms=NOW_MS)).splitlines()[-1].endswith("2")
    put_state(layer, "d", GridState(serving=Run(run="second", shape=shape)))
    Announcement(layer, "d", cell, shape, run="second").make()
    assert restarts() == 0
    assert cell_pids(layer, "d") == {cell: os.getpid()}


def test_a_cluster_of_other_machines_gets_the_named_python_and_nothing_of_this_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def sent(master: str) -> tuple[str | None, str | None]:
        with home.environment(tmp_path, master):
            return configuration.configuration(master).get("spark.executorEnv.PYTHONPATH"), os.environ.get(
                "PYSPARK_PYTHON"
            )

    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert sent("spark://head:7077")[1] == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    assert sent("spark://head:7077") == (None, "./environment/bin/python")
    assert sent("local[8,8]")[1] == sys.executable
    assert os.environ["PYSPARK_PYTHON"] == "./environment/bin/python"
