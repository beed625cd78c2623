"""Learning of lifetimes from the recorded history, on Spark: for each kind of result the best parameters in retrospect.

The windows of the statistics job hold, for every query, its reads, its changes and its kind. Each kind is simulated with
each candidate by the production estimator, as many at a time as Spark has cores. The same job fits a day on a laptop and a
month on a cluster. The chosen candidate gives browsers the most fresh hits within a bound on staleness, in the first two
thirds of the time. The last third, to which nothing was fitted, decides: a candidate that does not beat the present
parameters there is dropped.

The work is bounded. Of a kind with more than MOST_READS reads, a share of the queries is taken, each with all of its reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from quaestor.errors import ConfigurationError, DependencyError, QuaestorError
from quaestor.simulation.comparison import production
from quaestor.simulation.fitting import LEAST_HELD, LEAST_READS, TRAINED, best, better, between, candidates
from quaestor.simulation.simulate import Figures, System, simulated
from quaestor.simulation.workload import counted
from quaestor.statistics.rows import KIND, MATCH_MEASURES, QUERY, READ_MEASURES
from quaestor.statistics.session import spark_session
from quaestor.tables.log import Table
from quaestor.ttl.parameters import MOST_KINDS, TtlParameters, Tuning

MOST_READS: Final = 500_000
"""Largest number of simulated reads of one kind."""
_CHANGES: Final = tuple(measure for measure in MATCH_MEASURES if measure != "evicted")
_TASKS_A_CORE: Final = 4
_SETTINGS: Final = {
    "spark.app.name": "quaestor-ttl-learn",
    "spark.cores.max": str(2**31 - 1),  # the job ends, so it may take all free cores
    "spark.sql.adaptive.enabled": "false",  # it would merge many tasks into few
}
_COLUMNS: Final = ("query", "from_s", "length_s", "reads", "changes")
_LOOK_EVERY_S: Final = 1.0

Progress = Callable[[int, int], None]
"""Receiver of the progress: the number of done tasks, and of all tasks."""


class Shares(NamedTuple):
    """Figures of a simulation: shares of the requests (0..1), and purges a second."""

    browser_fresh: float
    stale: float
    purges_hz: float


class Tried(NamedTuple):
    """One candidate on one kind: figures of the fitted time, and of the time held back, with its reads."""

    kind: str
    candidate: int
    trained: Shares
    held_reads: int
    held: Shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """Parameters learned for one kind.

    reads: reads of the kind in the whole history.
    tuning: best parameters of the fitted time.
    before, after: figures of the present and of these parameters in the time held back.
    validated: these parameters do better there, so they are taken.
    """

    kind: str
    reads: int
    tuning: Tuning
    before: Shares
    after: Shares
    validated: bool


def learn(
    directory: Path,
    *,
    master: str,
    present: TtlParameters,
    stale_at_most: float,
    clients: int,
    system: System,
    ignored: str = "",
    progress: Progress = lambda done, of: None,
) -> tuple[TtlParameters, list[Learned]]:
    """Learn from the windows in a directory of the statistics job, on a Spark of its own.

    Returns the present parameters, with the learned and validated ones in their place, and everything learned.

    present: present parameters, whose bounds and budgets stay.
    stale_at_most: share of the requests (0..1) that may get an older answer; if no candidate keeps it, the least stale is
        taken.
    clients: number of browsers that share the requests.
    ignored: a namespace to leave out.

    Raises ConfigurationError if there is too little to learn from, or no Java or pyspark; DependencyError.
    """
    table = Table(directory.absolute() / "windows")
    paths = _shortest_windows(table, directory)
    with spark_session(master, _SETTINGS) as session:
        try:
            session.conf.set("spark.sql.shuffle.partitions", str(2 * session.sparkContext.defaultParallelism))
            series, reads = _series(session, paths, table.data, ignored)
            if not reads:
                raise ConfigurationError(
                    f"{directory} has fewer than {LEAST_READS} reads of any kind of query: let `quaestor statistics run` go on "
                    "for longer"
                )
            tried = {kind: tuple(candidates(present.of(kind))) for kind in reads}
            results = _collected(session, _simulated(session, series, tried, clients, system), progress)
        except QuaestorError:
            raise
        except Exception as error:  # Java's errors have no common class
            raise DependencyError(f"learning on Spark failed: {str(error).strip()[:1_000]}") from error
    learned = [_chosen(kind, count, tried[kind], results, stale_at_most) for kind, count in reads.items()]
    room = MOST_KINDS - len(present.kinds)
    taken = [result for result in learned if result.validated and result.tuning != present.of(result.kind)]
    kinds = dict(present.kinds) | {result.kind: result.tuning for result in taken if result.kind in present.kinds}
    kinds |= {result.kind: result.tuning for result in [result for result in taken if result.kind not in kinds][:room]}
    return TtlParameters(default=present.default, kinds=kinds), learned


def _shortest_windows(table: Table, directory: Path) -> list[str]:
    """Return the files of the shortest windows, which divide the time most finely; the others repeat the same counts."""
    files = [(int(dict(file.partition)["window_s"]), file.path) for file in table.snapshot().files.values()]
    if not files:
        raise ConfigurationError(
            f"{directory} has no windows: `quaestor statistics run --directory {directory}` makes them"
        )
    shortest = min(length_s for length_s, _ in files)
    return [str(table.root / path) for length_s, path in files if length_s == shortest]


def _series(session: Any, paths: Sequence[str], root: Path, ignored: str) -> tuple[Any, dict[str, int]]:
    """Return a frame of the windows of queries whose kind has enough reads, and the number of reads of each such kind."""
    from pyspark.sql import functions as F  # noqa: N812

    windows = session.read.option("basePath", str(root)).parquet(*paths)
    named = windows.where(F.col("scope") == KIND).select("name", F.explode("top").alias("one"))
    kinds = named.groupBy("name").agg(F.max_by(F.col("one.item"), F.col("one.count")).alias("kind"))
    kinds = kinds.where(~F.startswith("kind", F.lit(f"{ignored}:")))
    reads, changes = (reduce(add, map(F.col, names)) for names in (READ_MEASURES, _CHANGES))
    series = (
        windows.where(F.col("scope") == QUERY)
        .join(kinds, "name")
        .select(
            "kind",
            F.xxhash64("name").alias("query"),
            F.unix_timestamp("start").alias("from_s"),
            F.col("window_s").cast("long").alias("length_s"),
            reads.alias("reads"),
            changes.alias("changes"),
        )
        .persist()
    )
    totals = series.groupBy("kind").agg(F.sum("reads").alias("reads")).where(F.col("reads") >= LEAST_READS)
    reads_by_kind = {
        row["kind"]: int(row["reads"]) for row in totals.orderBy(F.desc("reads")).limit(MOST_KINDS).collect()
    }
    if not reads_by_kind:
        return series, reads_by_kind
    taken = [(kind, int(10_000 * min(1.0, MOST_READS / count))) for kind, count in reads_by_kind.items()]
    shares = F.broadcast(session.createDataFrame(taken, "kind string, share int"))
    return series.join(shares, "kind").where(F.pmod("query", F.lit(10_000)) < F.col("share")).drop(
        "share"
    ), reads_by_kind


def _simulated(session: Any, series: Any, tried: Mapping[str, tuple[Tuning, ...]], clients: int, system: System) -> Any:
    """Return each kind with each candidate, not computed yet. A kind's windows go to as many tasks as it has cores."""
    from pyspark.sql import functions as F  # noqa: N812

    cores = int(session.sparkContext.defaultParallelism)
    chunks = max(1, min(_TASKS_A_CORE * cores // len(tried), *map(len, tried.values())))
    grouped = series.groupBy("kind").agg(F.collect_list(F.struct(*_COLUMNS)).alias("windows"))
    numbered = F.broadcast(session.range(chunks).select(F.col("id").cast("int").alias("chunk")))
    each = grouped.select("kind", *(F.col(f"windows.{column}").alias(column) for column in _COLUMNS)).crossJoin(
        numbered
    )
    work = partial(_simulate, tried=tried, chunks=chunks, clients=clients, system=system)
    return each.repartitionByRange(chunks * len(tried), "kind", "chunk").rdd.flatMap(work)


def _simulate(
    row: Any, *, tried: Mapping[str, tuple[Tuning, ...]], chunks: int, clients: int, system: System
) -> list[Tried]:
    """Simulate some candidates on one kind, in a Python worker."""
    kind = str(row["kind"])
    workload = counted(kind, *(np.array(row[column], dtype=np.int64) for column in _COLUMNS), clients=clients)
    cut_s = workload.length_s * TRAINED
    parts = between(workload, 0.0, cut_s), between(workload, cut_s, np.inf)
    results = []
    for candidate in range(row["chunk"], len(tried[kind]), chunks):
        parameters = TtlParameters(default=tried[kind][candidate])
        trained, held = (simulated(part, production(parameters), system) for part in parts)
        results.append(Tried(kind, candidate, _shares(trained), len(parts[1].read_s), _shares(held)))
    return results


def _shares(figures: Figures) -> Shares:
    return Shares(figures.browser_fresh, figures.stale, figures.purges_hz)


def _collected(session: Any, results: Any, progress: Progress) -> list[Tried]:
    tracker, reported = session.sparkContext.statusTracker(), (0, 0)
    with ThreadPoolExecutor(max_workers=1) as pool:
        collecting = pool.submit(results.collect)
        while True:
            try:
                return list(collecting.result(timeout=_LOOK_EVERY_S))
            except NotYet:
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                known = [stage for stage in stages if stage is not None]
                now = sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
                if now[1] and now != reported:
                    reported = now
                    progress(*reported)


def _chosen(
    kind: str, reads: int, tunings: Sequence[Tuning], results: Iterable[Tried], stale_at_most: float
) -> Learned:
    tried = sorted(result for result in results if result.kind == kind)
    place = best([result.trained for result in tried], stale_at_most)
    before, after = tried[0].held, tried[place].held
    validated = tried[place].held_reads >= LEAST_HELD and better(after, before, stale_at_most)
    return Learned(kind=kind, reads=reads, tuning=tunings[place], before=before, after=after, validated=validated)
