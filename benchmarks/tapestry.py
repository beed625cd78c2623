"""Continuous queries: the incremental query of a run beside the full query, as in the paper on Tapestry.

Data: messages from a seed (benchmarks/workloads/messages.py) in a table of 208 files: 380,000, or 10 and 100 times as many.
Queries: Q1 one newsgroup; Q2 a family of newsgroups; Q3 messages with a reply in a newsgroup; Q4 messages of four weeks without
a reply; Q5 chains of three messages. A reply comes after its message.

Figures of each query and engine: the full query from the files (`full`). The incremental query runs when 100, 10, 1 and 0.1 %
of the messages are new. DuckDB also runs the full query on the copy that the engine keeps of the table (`full_kept`).
`or`: one text with an OR over the instants, as in the paper. `split`: a branch for each table that may be the newest.
`single`: with the known order. A figure is the median of several runs after a warm-up. Beside it: rows of the result, files,
rows and bytes that were read. `floor`: a query over one empty file. Figure 7: Q1 over the share of new
messages. Figure 8: Q3 with 38,000 new messages over growing tables. Figure 9 is left out: tables have no index.

Result: benchmarks/results/tapestry_<messages>_<executor>.json and .svg.
Run: python -m benchmarks.tapestry --messages 380000 --executor duckdb --keep (and 3800000, 38000000; spark); plots: --draw
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import psutil
from sqlglot import exp

from benchmarks import harness
from benchmarks.workloads.messages import SEED, YEAR, Clock, Messages, fill
from quaestor.continuous.compilation import CompiledQuery, compile_query
from quaestor.continuous.executors.choice import executor_of
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.executors.executor import Executor
from quaestor.continuous.rules.orders import KnownOrder
from quaestor.continuous.sql_engine import SqlQuery
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.schema import Column, Schema, Type

QUERIES: Final = {
    "Q1": "SELECT msgid FROM msgs WHERE newsgroup = 'comp.databases'",
    "Q2": "SELECT msgid FROM msgs WHERE newsgroup LIKE 'comp.sys.%'",
    "Q3": "SELECT m.msgid FROM msgs m, msgs r WHERE r.inreplyto = m.msgid AND r.newsgroup = 'comp.databases'",
    "Q4": """SELECT m.msgid FROM msgs m WHERE m.ts < now() - INTERVAL 4 WEEK
        AND NOT EXISTS (SELECT 1 FROM msgs r WHERE r.inreplyto = m.msgid)""",
    "Q5": """SELECT m.msgid, r.msgid AS reply, a.msgid AS answer FROM msgs m, msgs r, msgs a
        WHERE m.inreplyto = '' AND r.inreplyto = m.msgid AND a.inreplyto = r.msgid""",
}
ALIASES: Final = {"Q3": ("m", "r"), "Q5": ("m", "r", "a")}
"""Tables of the queries whose incremental query can have an OR."""
AFTER_ITS_MESSAGE: Final = KnownOrder("msgs", "msgid", "msgs", "inreplyto")
NEW: Final = (1.0, 0.1, 0.01, 0.001)
FIGURE_7: Final = (1.0, 0.75, 0.5, 0.25, 0.1, 0.05, 0.01, 0.0)
FIGURE_8_NEW: Final = YEAR // 10
FLOOR: Final = "SELECT id FROM empty WHERE id = 1"


class Bench:
    """Queries on the messages, on one engine.

    repeats: measured runs of each figure, after one that is not measured.
    """

    def __init__(self, messages: Messages, executor: Executor, repeats: int) -> None:
        self.messages = messages
        self.repeats = repeats
        self._executor = executor
        self._schemas = messages.catalogue.schemas()

    def result(self) -> dict[str, Any]:
        """Return all figures."""
        return {
            "messages": self.messages.count,
            "seed": SEED,
            "floor": self.floor(),
            "queries": {name: self.query(name) for name in QUERIES},
            "figure_7": [self.new_share("Q1", "single", share) for share in FIGURE_7],
            "figure_8": list(self.growing()),
        }

    def floor(self) -> dict[str, Any]:
        """Return the least that any query takes on this engine."""
        upto = self.messages.catalogue.open("empty").snapshot().instant
        return self._measured(compile_query(FLOOR, self._schemas), 1, upto)

    def query(self, name: str) -> dict[str, Any]:
        """Return the figures of one query."""
        compiled = self._compiled(name, "single")
        last = self.messages.instant(self.messages.count)
        full = replace(compiled, incremental=compiled.standard)
        figures: dict[str, Any] = {"full": self._measured(full, 0, last)}
        if isinstance(self._executor, DuckDbExecutor):
            figures["full_kept"] = self._measured(full, 1, last)
        forms = ("single", "split", "or") if name in ALIASES else ("single",)
        for form in forms:
            figures[form] = [self.new_share(name, form, share) for share in NEW]
        print(name, figures, flush=True)
        return figures

    def new_share(self, name: str, form: str, share: float) -> dict[str, Any]:
        """Return the figure of an incremental query over the newest share of the messages."""
        count = self.messages.count
        after = self.messages.instant(count - round(count * share))
        return {"new": share} | self._measured(self._compiled(name, form), after, self.messages.instant(count))

    def growing(self) -> Iterator[dict[str, Any]]:
        """Yield the figures of Q3 with equally many new messages over growing tables."""
        for part in range(1, 11):
            count = self.messages.count * part // 10
            after = self.messages.instant(max(0, count - FIGURE_8_NEW))
            yield {"messages": count} | self._measured(
                self._compiled("Q3", "single"), after, self.messages.instant(count)
            )

    def _compiled(self, name: str, form: str) -> CompiledQuery:
        return _with_or(name, self._of(name, False)) if form == "or" else self._of(name, form == "single")

    @cache  # noqa: B019  the bench lives as long as its process
    def _of(self, name: str, ordered: bool) -> CompiledQuery:
        return compile_query(QUERIES[name], self._schemas, orders=[AFTER_ITS_MESSAGE] if ordered else [])

    def _measured(self, compiled: CompiledQuery, after: int, upto: int) -> dict[str, Any]:
        query = SqlQuery(compiled, self.messages.catalogue, self._executor)
        snapshots = {name: self.messages.catalogue.open(name).snapshot() for name in query.tables}
        evaluated = query.rows(after, upto, snapshots)
        times = []
        for _ in range(self.repeats):
            began_s = time.perf_counter()
            query.rows(after, upto, snapshots)
            times.append(time.perf_counter() - began_s)
        return {
            "s": round(statistics.median(times), 4),
            "rows": evaluated.rows.num_rows,
            "files_read": evaluated.read.files,
            "rows_read": evaluated.read.rows,
            "bytes_read": evaluated.read.bytes,
        }


def _with_or(name: str, compiled: CompiledQuery) -> CompiledQuery:
    """Return a query whose incremental text is the paper's: the monotone query, and an OR over the instants."""
    assert isinstance(compiled.monotone, exp.Select)
    after = [
        exp.LT(this=exp.Placeholder(this="tau"), expression=exp.column("ts", table=alias)) for alias in ALIASES[name]
    ]
    return replace(compiled, incremental=compiled.monotone.where(exp.or_(*after)))


@contextmanager
def messages_in(folder: Path | None, count: int) -> Iterator[Messages]:
    """Give the table of messages: a new one in a temporary folder, or the one of a folder, made if it is empty."""
    with tempfile.TemporaryDirectory(prefix="quaestor-tapestry-") as temporary:
        clock = Clock()
        catalogue = Catalogue(folder or Path(temporary), clock=clock)
        if "empty" in catalogue.names():
            yield Messages(catalogue, count)
            return
        messages = fill(catalogue, clock, count)
        catalogue.create("empty", Schema((Column("id", Type.BIGINT),))).append([{"id": None}])
        yield messages


def peaks() -> dict[str, float]:
    """Return the largest memory of this process, and of the JVM if there is one, in MB."""
    jvm_kb = max((_peak_kb(process) for process in psutil.Process().children(recursive=True)), default=0)
    return {
        "process_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "jvm_mb": round(jvm_kb / 1024, 1),
    }


def _peak_kb(process: psutil.Process) -> int:
    lines = Path("/proc", str(process.pid), "status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def draw(path: Path, result: dict[str, Any]) -> None:
    """Write the plots: each query beside its full query, and figures 7 and 8. Raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "quaestor"
    from matplotlib import pyplot

    figure, (queries, share, growth) = pyplot.subplots(1, 3, figsize=(15, 4))
    names = list(result["queries"])
    bars = {
        name: [result["queries"][query].get(name, {}).get("s", 0.0) for query in names]
        for name in ("full", "full_kept")
    }
    bars |= {
        f"{new:.1%} new": [result["queries"][query]["single"][place]["s"] for query in names]
        for place, new in enumerate(point["new"] for point in result["queries"][names[0]]["single"])
    }
    width = 0.8 / len(bars)
    for place, (label, seconds) in enumerate(bars.items()):
        queries.bar([number + place * width for number in range(len(names))], seconds, width, label=label)
    queries.axhline(result["floor"]["s"], linestyle="--", linewidth=1, color="black", label="floor")
    queries.set_xticks([number + 0.4 for number in range(len(names))], names)
    queries.set(ylabel="s", yscale="log", title=f"{result['messages']:,} messages")
    queries.legend(fontsize="x-small")
    for axes, key, name, title in (
        (share, "figure_7", "new", "Figure 7: Q1 over the share of new messages"),
        (growth, "figure_8", "messages", "Figure 8: Q3 with equally many new messages"),
    ):
        axes.plot([point[name] for point in result[key]], [point["s"] for point in result[key]], marker="o")
        axes.set(xlabel=name, ylabel="s", title=title)
        axes.set_ylim(bottom=0)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    """Read the arguments, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=YEAR)
    parser.add_argument("--executor", choices=("duckdb", "spark"), default="duckdb")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="keep the messages here, and use them again")
    parser.add_argument("--keep", action="store_true", help="write the result to benchmarks/results")
    parser.add_argument("--draw", action="store_true", help="only draw the plots of the results that are kept")
    given = parser.parse_args()
    if given.draw:
        for kept in harness.RESULTS.glob("tapestry_*.json"):
            draw(kept.with_suffix(".svg"), json.loads(kept.read_text()))
        return
    with messages_in(given.folder, given.messages) as messages:
        began_s = time.perf_counter()
        executor = executor_of(given.executor, "local[2]")
        result = Bench(messages, executor, given.repeats).result() | {"executor": given.executor, "memory": peaks()}
        executor.close()
    result["seconds"] = round(time.perf_counter() - began_s, 1)
    name = f"tapestry_{given.messages}_{given.executor}"
    harness.report(name, result, keep=given.keep)
    if given.keep:
        draw(harness.RESULTS / f"{name}.svg", result)


if __name__ == "__main__":
    main()
