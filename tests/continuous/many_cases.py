"""Many random cases of continuous queries against the oracle: `python -m tests.continuous.many_cases --cases 1000000`.

A case is a random query, a random history and a random schedule of runs. Each query is compiled once, and meets many histories.
DuckDB evaluates the runs of all histories in one statement: the history and the instants of a run are outer columns.

The oracle knows every tick. In a case without differences all runs together deliver each row that the query returned at any tick.
No run delivers a row too early, or twice. Each row enters at its first tick.

The log has a line for each query, so an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import duckdb
import pyarrow as pa
from sqlglot import exp

from quaestor.continuous.compilation import CompiledQuery, compile_query
from quaestor.continuous.executors.zones import without_zones
from quaestor.continuous.instants import BEGINNING, timestamp
from quaestor.continuous.sql.refusals import QueryRefusedError
from tests.continuous import oracle, oracle_over_time
from tests.continuous.checks import CATALOGUE, arrow, rows_of, ticks
from tests.continuous.random_queries import INSTANTS, Queries, histories, schedule

HISTORIES: Final = 200
"""Histories of each query."""
MOST_TEXT: Final = 20_000
"""Longest text that is executed: DuckDB plans a longer one for many seconds."""
VERSIONS: Final = frozenset({"v"})
_HISTORY: Final = "history"
_RUN: Final = "run"


@dataclass(kw_only=True)
class Outcome:
    """Outcome of one query with its histories.

    refused: reason of a refusal, `long` for a text beyond MOST_TEXT; empty: the query was executed.
    """

    seed: int
    cases: int = 0
    runs: int = 0
    rows: int = 0
    refused: str = ""
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Case:
    """History with a schedule, and each row of the query with its first tick."""

    tables: dict[str, list[dict[str, Any]]]
    instants: Sequence[int]
    first: dict[tuple[Any, ...], int]


def check(connection: duckdb.DuckDBPyConnection, seed: int, *, count: int = HISTORIES) -> Outcome:
    """Compare the runs of a random query over many histories with the oracle."""
    random = Random(seed)
    plain = random.random() < 0.3
    queries = Queries(random, plain=plain)
    outcome = _checked(connection, seed, queries.query(), plain=plain, count=count)
    if outcome.refused in ("alternatives", "long"):
        outcome = _checked(connection, seed, queries.select((), 1, None), plain=plain, count=count)
    return outcome


def _checked(
    connection: duckdb.DuckDBPyConnection, seed: int, query: oracle.Query, *, plain: bool, count: int
) -> Outcome:
    cases = list(_cases(Random(seed), query, count))
    try:
        compiled = compile_query(query.sql(), CATALOGUE)
    except QueryRefusedError as error:
        if "never true" in error.reason:
            faults = [query.sql()] if any(case.first for case in cases) else []
            return Outcome(seed=seed, cases=count, faults=faults)
        if "alternatives" in error.reason:
            return Outcome(seed=seed, refused="alternatives")
        return Outcome(seed=seed, refused=error.reason, faults=[f"{error}: {query.sql()}"])
    if len(compiled.first_only.sql()) > MOST_TEXT:
        return Outcome(seed=seed, refused="long")
    faults = list(_faults(connection, compiled, cases, plain=plain))
    if faults:
        faults.append(query.sql())
    return Outcome(
        seed=seed,
        cases=count,
        runs=sum(len(case.instants) for case in cases),
        rows=sum(len(case.first) for case in cases),
        faults=faults,
    )


def _cases(random: Random, query: oracle.Query, count: int) -> Iterator[Case]:
    for _ in range(count):
        tables, instants = histories(random), schedule(random)
        history = oracle_over_time.History(tables, INSTANTS, VERSIONS)
        yield Case(tables, instants, oracle_over_time.first_instants(query, history))


def _faults(
    connection: duckdb.DuckDBPyConnection, compiled: CompiledQuery, cases: Sequence[Case], *, plain: bool
) -> Iterator[str]:
    _fill(connection, cases)
    exact, combined = _by_run(connection, compiled.first_only), _by_run(connection, compiled.incremental)
    entered = _by_run(connection, compiled.entries)
    for number, case in enumerate(cases):
        delivered: Counter[tuple[Any, ...]] = Counter()
        combinations: Counter[tuple[Any, ...]] = Counter()
        tau = INSTANTS.start - 1
        for place, t in enumerate(case.instants):
            run = (number, place)
            new = {row for row, tick in case.first.items() if tau < tick <= t}
            known = {row for row, tick in case.first.items() if tick <= t}
            if Counter(exact.get(run, ())) != Counter(new):
                yield f"exact within ({tau}, {t}]: {exact.get(run)} instead of {new} {case}"
            if not new <= set(combined.get(run, ())) <= known:
                yield f"incremental within ({tau}, {t}]: {combined.get(run)} between {new} and {known} {case}"
            delivered.update(exact.get(run, ()))
            combinations.update(combined.get(run, ()))
            tau = t
        if delivered and max(delivered.values()) > 1:
            yield f"delivered twice: {delivered} {case}"
        if (plain or not compiled.may_repeat) and combinations and max(combinations.values()) > 1:
            yield f"combinations twice: {combinations} {case}"
        last = {row[:-1]: ticks(row[-1]) for row in entered.get((number, len(case.instants) - 1), ())}
        if last != case.first:
            yield f"instants of entering: {last} instead of {case.first} {case}"


def _fill(connection: duckdb.DuckDBPyConnection, cases: Sequence[Case]) -> None:
    """Make the tables: rows of all histories, and all runs."""
    for name, schema in CATALOGUE.items():
        rows = [row for case in cases for row in case.tables[name]]
        numbers = [number for number, case in enumerate(cases) for _ in case.tables[name]]
        table = without_zones(arrow(rows, schema)).append_column(_HISTORY, pa.array(numbers, pa.int64()))
        _make(connection, name, table)
    runs = []
    for number, case in enumerate(cases):
        begins = [BEGINNING, *map(timestamp, case.instants)]
        for place, (tau, t) in enumerate(zip(begins, case.instants, strict=False)):
            runs.append({_HISTORY: number, "place": place, "tau": tau, "t": timestamp(t)})
    _make(connection, _RUN, pa.Table.from_pylist(runs))


def _make(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    connection.register("given", table)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM given")
    connection.unregister("given")


def _by_run(
    connection: duckdb.DuckDBPyConnection, expression: exp.Query
) -> dict[tuple[int, int], list[tuple[Any, ...]]]:
    """Return the rows of an expression by history and run."""
    text = f"SELECT run.history, run.place, result.* FROM run, LATERAL ({_of_runs(expression).sql('duckdb')}) AS result"
    rows: dict[tuple[int, int], list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows_of(connection.sql(text).to_arrow_table()):
        rows[row[:2]].append(row[2:])
    return rows


def _of_runs(expression: exp.Query) -> exp.Query:
    """Return the expression over the history and the instants of an outer run."""
    copy = expression.copy()
    own = exp.EQ(this=exp.column(_HISTORY), expression=exp.column(_HISTORY, table=_RUN))
    for table in list(copy.find_all(exp.Table)):
        rows = exp.select("*").from_(exp.table_(table.name)).where(own.copy())
        table.replace(rows.subquery(table.alias_or_name))
    for node in list(copy.find_all(exp.Placeholder)):
        node.replace(exp.column(node.name, table=_RUN))
    return copy


def _seeds(log: Path, share: int, shares: int) -> Iterator[int]:
    done = {json.loads(line)["seed"] for line in _lines(log)}
    seed = share
    while True:
        if seed not in done:
            yield seed
        seed += shares


def _lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def _total(log: Path) -> Counter[str]:
    total: Counter[str] = Counter()
    for outcome in map(json.loads, _lines(log)):
        total["queries"] += 1
        total["cases"] += outcome["cases"]
        total["runs"] += outcome["runs"]
        total["rows"] += outcome["rows"]
        total["queries with differences"] += bool(outcome["faults"])
        if outcome["refused"]:
            total[f"refused queries: {outcome['refused']}"] += 1
    return total


def run(log: Path, *, cases: int, histories_each: int = HISTORIES, share: int = 0, shares: int = 1) -> Counter[str]:
    """Run cases until the log has enough of them; return its counts."""
    reached = _total(log)["cases"]
    connection = engine()
    with log.open("a") as file:
        for seed in _seeds(log, share, shares):
            if reached >= cases:
                break
            outcome = check(connection, seed, count=histories_each)
            reached += outcome.cases
            file.write(json.dumps(asdict(outcome)) + "\n")
            file.flush()
            if outcome.faults:
                print(seed, *outcome.faults[:1], outcome.faults[-1], sep="\n", flush=True)
    return _total(log)


def engine() -> duckdb.DuckDBPyConnection:
    """Return an engine with one thread, in UTC."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def main() -> None:
    """Read the arguments, run the cases, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--histories", type=int, default=HISTORIES)
    parser.add_argument("--log", type=Path, default=Path("many_cases.ndjson"))
    parser.add_argument(
        "--share", default="0/1", help="part of the seeds of this process: 0/2 and 1/2 for two processes"
    )
    given = parser.parse_args()
    share, shares = map(int, given.share.split("/"))
    began_s = time.monotonic()
    total = run(given.log, cases=given.cases, histories_each=given.histories, share=share, shares=shares)
    print(json.dumps({**total, "seconds": round(time.monotonic() - began_s, 1)}))
    sys.exit(total["queries with differences"] > 0)


if __name__ == "__main__":
    main()
