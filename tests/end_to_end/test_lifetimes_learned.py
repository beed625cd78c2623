"""Learning of lifetimes on a real Spark, as its users run it: from the statistics job's windows to an app that took them up."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quaestor import Quaestor
from quaestor.runtime import services
from quaestor.simulation.fitting import candidates
from quaestor.statistics.rows import MEASURES
from quaestor.tables.changes import Change, DataFile
from quaestor.tables.log import Table
from quaestor.ttl.chosen import ChosenEstimators
from quaestor.ttl.parameters import Tuning, decoded
from tests.support import eventually

pytestmark = pytest.mark.anyio

START = datetime(2025, 3, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("start", pa.timestamp("us", tz="UTC")), ("scope", pa.string()), ("name", pa.string()),
        *((measure, pa.int64()) for measure in MEASURES),
        ("top", pa.list_(pa.struct([("item", pa.string()), ("count", pa.int64())]))),
    ]
)  # fmt: skip
HOT, COLD = "shop.prices:find", "shop.prices:record"


def window(second: int, scope: str, name: str, item: str | None = None, **measures: int) -> dict[str, Any]:
    top = [] if item is None else [{"item": item, "count": 1}]
    return {
        "start": START + timedelta(seconds=second), "scope": scope, "name": name, "top": top,
        **{measure: measures.get(measure, 0) for measure in MEASURES},
    }  # fmt: skip


def history() -> list[dict[str, Any]]:
    """Ten minutes of a list that changes every 20 s, of a record that changes twice, and of what is not to be learned from."""
    rows = [window(0, "query", "nobody knows its kind", hit=10_000), window(0, "query", "tags", hit=10_000)]
    rows.append(window(0, "kind", "tags", "quaestor.control:find", miss=1))
    for second in range(600):
        for query, kind, every in (("hot", HOT, 20), ("cold", COLD, 250)):
            if second % 50 == 0:
                rows.append(window(second, "kind", query, kind, miss=1))
            rows.append(window(second, "query", query, hit=2, miss=1, change=int(second % every == every - 1)))
    return rows


def record(directory: Path, rows: list[dict[str, Any]], *, length_s: int = 1) -> None:
    """As the statistics job leaves them."""
    table = Table(directory / "windows")
    partition = (("date", "2025-03-01"), ("window_s", str(length_s)))
    path = Path("data", *(f"{name}={value}" for name, value in partition), "part.parquet")
    (table.root / path).parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), table.root / path)
    file = DataFile(path=str(path), rows=len(rows), bytes=(table.root / path).stat().st_size, partition=partition)
    table.publish(lambda _: Change(add=(file,)), now_us=0)


async def quaestor_ttl(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "quaestor.cli", "ttl", *arguments],
        env=os.environ | {"TMPDIR": str(folder), **environment}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip


@pytest.mark.timeout(900)
@pytest.mark.slow
async def test_learned_parameters_are_taken_up_by_a_running_app_and_undone(
    tmp_path: Path, redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each class of a collection's queries gets its own parameters if the time held back confirms them; progress is
    shown.

    A decision on the basis of another publication is refused before Spark starts.
    """
    monkeypatch.setattr(services, "_TUNED_EVERY_S", 0.05)
    record(tmp_path / "statistics", history())
    record(tmp_path / "statistics", history(), length_s=10)  # the same, once more
    out = tmp_path / "lifetimes.json"
    quaestor = Quaestor(redis_url=redis_url, deployment=prefix, grid=False, explicit=True)
    estimator = quaestor.parts.estimator
    assert isinstance(estimator, ChosenEstimators)

    async def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return await quaestor_ttl(*arguments, folder=tmp_path, REDIS_URL=redis_url, QUAESTOR_DEPLOYMENT=prefix)

    learn = (
        "learn", str(tmp_path / "statistics"), "--out", str(out), "--stale-at-most", "0.05", "--delta", "5", "--clients", "5",
        "--master", "local[1]",
    )  # fmt: skip
    await quaestor.start()
    try:
        done = await run(*learn, "--on", "0")
        assert done.returncode == 0, done.stderr
        assert f"{HOT}: 1800 reads, lifetimes, quantile" in done.stdout
        assert f"{COLD}: 1800 reads, lifetimes, quantile" in done.stdout
        assert "tasks of the present stage" in done.stdout
        learned = decoded(out.read_bytes())
        assert learned.kinds
        assert set(learned.kinds) <= {HOT, COLD}
        assert set(learned.kinds.values()) <= set(candidates(learned.default))
        taken = {line.partition(": ")[0] for line in done.stdout.splitlines() if line.endswith(": taken")}
        assert set(learned.kinds) == taken
        await eventually(lambda: estimator.parameters == learned)
        late = await run(*learn, "--on", "0")
        assert late.returncode == 2
        assert "number 1 counts, not 0" in late.stderr
        assert (await run("rollback")).returncode == 0
        await eventually(lambda: not estimator.parameters.kinds)
        assert estimator.parameters.default == Tuning()
    finally:
        await quaestor.stop()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("rows", "why"),
    [([], "has no windows"), (history()[:2] + history()[3:40], "has fewer than 200 reads of any kind of query")],
    ids=["no windows", "too few reads"],
)
async def test_a_history_with_too_little_in_it_is_refused(tmp_path: Path, rows: list[dict[str, Any]], why: str) -> None:
    """In one sentence, and nothing is written."""
    out = tmp_path / "lifetimes.json"
    if rows:
        record(tmp_path / "statistics", rows)
    refused = await quaestor_ttl(
        "learn", str(tmp_path / "statistics"), "--out", str(out), "--master", "local[1]", folder=tmp_path
    )
    assert refused.returncode == 2, refused.stderr
    assert why in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert not out.exists()
