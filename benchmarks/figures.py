"""Table of figures in README.md, from the result files: headlines with their conditions, figures beside their unfavourable twins.

Run: python -m benchmarks.figures (writes the table between its two marks); --check only compares, and exits with 1 if README
says anything else. A result that was measured on a tree with changes is refused: nobody could measure it again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import harness

README: Final = Path(__file__).parent.parent / "README.md"
BEGIN: Final = "<!-- figures: written by `make figures` -->"
END: Final = "<!-- /figures -->"

Result = Mapping[str, Any]
Row = tuple[str, str, str]
"""What is measured and on what condition; the figure; what is beside it: the baseline, and the unfavourable twin."""


class FiguresError(Exception):
    """Figures that cannot be made: a result file is missing, or nobody could measure it again."""


def result(name: str) -> Result:
    """One result file. Raises FiguresError if there is none or its tree was not a commit's."""
    path = harness.RESULTS / f"{name}.json"
    if not path.exists():
        raise FiguresError(f"{path.name} is missing; run: python -m benchmarks.{name}")
    document: Result = json.loads(path.read_text())
    if str(document["commit"]).endswith("+changes"):
        raise FiguresError(
            f"{path.name} was measured on a changed tree ({document['commit'][:12]}); commit, then run: "
            f"python -m benchmarks.{name}"
        )
    return document


def count(value: float) -> str:
    """A number with three digits that matter: 28,400; 462; 4.15."""
    if value >= 1_000:
        digits = len(str(int(value))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def share(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:.0f} %"


def http_rows() -> list[Row]:
    """Hits and misses beside the peers'."""
    measured = result("http_peers")
    memory, grid = measured["in_memory"], measured["beside_a_2x2_grid"]

    def rate(name: str, kind: str, of: Result = memory) -> str:
        return count(of[name][kind]["requests_per_s"])

    peers = [name for name in memory if name not in ("uncached", "bare ASGI bytes") and not name.startswith("quaestor")]

    def ranked(kind: str) -> str:
        best = sorted(peers, key=lambda name: -memory[name][kind]["requests_per_s"])
        return ", ".join(f"{name.replace('_', '-')} {rate(name, kind)}" for name in best)

    around, line, ids = "quaestor, around the app", "quaestor, by the one line", "quaestor, a list of ids"
    return [
        (
            "cache hits of a 100-object list, one uvicorn worker, 32 connections",
            f"{rate(around, 'hits')}/s around the app, {rate(line, 'hits')}/s by the one line",
            f"bare ASGI bytes {rate('bare ASGI bytes', 'hits')}; {ranked('hits')}",
        ),
        (
            "... put together from a list of ids; out of Redis instead of memory",
            f"{rate(ids, 'hits')}/s; {rate('quaestor, out of Redis', 'hits', grid)}/s",
            f"uncached FastAPI {rate('uncached', 'hits')}",
        ),
        (
            "cache misses: every request another URL, all of its queries registered",
            f"{rate(around, 'misses')}/s around the app, {rate(line, 'misses')}/s by the one line; "
            f"{rate('quaestor, out of Redis', 'misses', grid)}/s beside a 2 x 2 grid",
            f"uncached {rate('uncached', 'misses')}; {ranked('misses')}",
        ),
    ]


def latency_rows() -> list[Row]:
    """From the acknowledged write to its effects, at each load."""
    rows: list[Row] = []
    for load in result("invalidation_latency")["loads"]:

        def of(what: str, load: Result = load) -> str:
            return f"{load[what]['p50_ms']:.1f} / {load[what]['p99_ms']:.0f} ms"

        rows.append(
            (
                f"acknowledged write to no longer served; evicted; purged from Varnish, p50 / p99, at "
                f"{load['writes_per_s_asked']:,} writes/s (2 x 2 grid, one app worker)",
                f"{of('no_longer_served')}; {of('evicted')}; {of('varnish_purged')}",
                f"bare change stream p99 {load['bare_change_stream']['p99_ms']:.1f} ms: "
                f"{load['no_longer_served_p99_over_bare']:.0f}, {load['evicted_p99_over_bare']:.0f} and "
                f"{load['purged_p99_over_bare']:.0f} times it (aim: 3)",
            )
        )
    return rows


def matching_rows() -> list[Row]:
    """What one node matches, by workload."""
    workloads = result("matching")["workloads"]

    def at(workload: str, queries: int) -> str:
        return next(count(one["writes_per_s"]) for one in workloads[workload]["node"] if one["queries"] == queries)

    most = max(int(one["queries"]) for one in workloads["papers"]["node"])
    return [
        (
            "one matching node, 100,000 queries, CPU time of one core: ranges; a mix that indexes find",
            f"{at('papers', 100_000)} writes/s; {at('indexed', 100_000)} writes/s",
            f"a mix with 10 % that no index finds: {at('mixed', 100_000)} writes/s, 1,000 such queries "
            f"{at('mixed', 1_000)} (that is why a node keeps at most 5,000 of them for a namespace)",
        ),
        (
            f"what {most:,} queries cost a write, over what 1,000 cost: ranges; a mix that indexes find",
            f"{workloads['papers']['growth']:.2f}; {workloads['indexed']['growth']:.2f}",
            f"the mix with 10 % that no index finds: {count(workloads['mixed']['growth'])}",
        ),
    ]


def grid_rows() -> list[Row]:
    """What the grid on Spark sustains, by shape."""
    measured = result("invalidb_scalability")
    sustained = {
        shape: f"{loads['20 ms']:,}" for shape, loads in measured["write_scalability"].items() if "(" not in shape
    }
    most = max((one for one in measured["table_3"] if one["grid"] == "1x1"), key=lambda one: float(one["queries"]))
    bare = measured["bare_redis"]["round_trips"]["1000"]
    mongo = measured["from_mongodb"]
    queries = measured.get("fixed_load", {}).get("queries", "1,000 queries")
    return [
        (
            f"the grid on Spark, write in its pipeline to notification read: 1 x 1, {most['queries']:,} queries, "
            f"{most['writes_per_s']:,} writes/s",
            f"p50 {most['p50_ms']:.1f} ms, p99 {most['p99_ms']:.1f} ms",
            f"one bare Redis round trip p50 {bare['p50_ms']:.2f} ms, p99 {bare['p99_ms']:.1f} ms; "
            f"it took {most['registering_s']:.0f} s to register them",
        ),
        (
            f"... highest write rate with a p99 under 20 ms, {queries}; cells and all else share the cores of one machine",
            ", ".join(f"{shape.replace('x', ' x ')}: {rate}/s" for shape, rate in sustained.items()),
            "more cells than cores bring nothing on one machine",
        ),
        (
            "... from the acknowledged write in MongoDB, 1 x 1, p99",
            ", ".join(
                f"{one['p99_ms']:.0f} ms at {one['writes_per_s']:,} writes/s with {one['queries']:,} queries"
                for one in mongo
            ),
            "",
        ),
    ]


def cell_rows() -> list[Row]:
    """What a write costs one cell, by the shape of its grid."""
    if not (harness.RESULTS / "cell_cost.json").exists():
        return []
    measured = result("cell_cost")
    points, model = measured["points"], measured["model"]

    def used(grid: str, view: str, *, unindexed: bool) -> float:
        point = next(
            one
            for one in points
            if one["grid"] == grid and one[view] and bool(one["queries_without_index"]) == unindexed
        )
        return float(point["us_of_a_cell_per_write_of_the_grid"]) * float(point["writes"])

    def fall(grid: str, *, unindexed: bool) -> str:
        view = "equal_load_in_all"
        return f"{used(grid, view, unindexed=unindexed) / used('1x1', view, unindexed=unindexed):.2f}"

    def kept(*, unindexed: bool) -> str:
        view = "equal_load_per_cell"
        return f"{used('4x4', view, unindexed=unindexed) / used('1x1', view, unindexed=unindexed):.2f}"

    return [
        (
            "CPU time of one cell of a 4 x 4 grid, over that of a 1 x 1: same load in all; same load per cell (queries that no "
            "index finds among them)",
            f"{fall('4x4', unindexed=True)}; {kept(unindexed=True)}",
            f"ranges, which an index finds: {fall('4x4', unindexed=False)}; {kept(unindexed=False)}: query partitions do not "
            f"divide those ({fall('4x1', unindexed=False)} with 4 x 1); a write that wakes a cell for itself alone costs "
            f"{model['us_of_a_write_that_wakes_the_cell_alone']:.0f} us instead of {model['read_us']:.0f}",
        )
    ]


def caching_rows() -> list[Row]:
    """Query caching over distance, with the fewest and with the most connections."""
    if not (harness.RESULTS / "quaestor_fig58.json").exists():
        return []
    measured = result("quaestor_fig58")
    rows: list[Row] = []
    for number in (0, len(measured["over_uncached"]) - 1):
        over = measured["over_uncached"][number]
        cdn, full = (measured["setups"][one][number] for one in ("CDN", "full"))
        limited = sorted({*cdn["limited_by"], *full["limited_by"]})
        rows.append(
            (
                f"150 ms to the app, 4 ms to Varnish, 1 % writes, {over['connections']} connections, closed loop: mean latency "
                "and throughput, over uncached",
                f"CDN {count(over['CDN']['lower_mean_latency'])}x lower, {count(over['CDN']['throughput'])}x; with caching "
                f"clients {count(over['full']['lower_mean_latency'])}x lower, {count(over['full']['throughput'])}x",
                f"aims 7 and 5, 30 and 11; stale {100 * cdn['stale']:.2f} % and {100 * full['stale']:.2f} %, the stalest "
                f"{cdn['stale_max_s']:.1f} s and {full['stale_max_s']:.1f} s"
                + (f"; without processor time left: {', '.join(limited)}" if limited else ""),
            )
        )
    return rows


def exactness_rows() -> list[Row]:
    """Needless evictions, and wrong answers under load."""
    vain, soak, inputs = result("false_invalidation"), result("soak"), result("inputs_soak")
    unseen = inputs["unseen"].values()
    exact, none = vain["with_images"]["exact"], vain["without_images"]
    shapes, unchecked = (
        vain[name]["without_images"]["widened"] for name in ("widened shapes", "widened shapes, not rechecked")
    )
    return [
        (
            "evictions of exactly matched queries whose answer was the same, with pre-images (not MongoDB's default)",
            f"{exact['in_vain']} of {exact['evictions']:,}",
            f"without pre-images, MongoDB's default: {none['exact']['in_vain']} of {none['exact']['evictions']:,}; "
            f"of widened queries {none['widened']['in_vain']} of {none['widened']['evictions']:,}, "
            f"in a mix of widened shapes only {share(shapes['share'])} "
            f"({share(unchecked['share'])} if they are not run again first); changes missed: {none['missed']}",
        ),
        (
            f"{soak['minutes']:.0f} minutes under load, something killed every 30 s: answers that were wrong",
            f"{soak['violations']} of {soak['responses']:,}",
            f"the stalest was {soak['stalest_ms'] / 1_000:.2f} s old (the bound is {soak['bound_ms'] / 1_000:.0f} s); "
            f"{soak['outcomes'].get('no answer', 0)} requests had no answer while their worker was dead",
        ),
        (
            f"{inputs['requests']:,} requests whose answers depend on more than their queries (fields, cookies, addresses, "
            f"the clock, order, own writes), {share(inputs['hits'] / inputs['requests'])} of them hits: stale; somebody else's",
            f"{inputs['stale']}; {inputs['foreign']}",
            f"of {len(unseen)} inputs that nobody can see (a file, a global variable, a memo ...) verification found "
            f"{sum(one['found'] for one in unseen)}; until then "
            f"{sum(one['wrong_until_then'] for one in unseen):,} answers were older "
            f"than the bound",
        ),
    ]


ROWS: Final[Sequence[Callable[[], list[Row]]]] = (
    http_rows,
    latency_rows,
    matching_rows,
    grid_rows,
    cell_rows,
    caching_rows,
    exactness_rows,
)


def table() -> str:
    """The table in Markdown, between its marks."""
    lines = [BEGIN, "| what, on what condition | measured | beside it in the same run |", "|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for rows in ROWS for row in rows()]
    return "\n".join([*lines, END])


def replaced(text: str) -> str:
    """README's text with the table as it should be. Raises FiguresError if a mark is missing."""
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise FiguresError(f"README.md has no {BEGIN if not found else END}")
    return before + table() + after


def main() -> None:
    """Write the table, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if README says anything else")
    arguments = parser.parse_args()
    try:
        text = README.read_text()
        wanted = replaced(text)
    except FiguresError as error:
        sys.exit(str(error))
    if wanted == text:
        return
    if arguments.check:
        sys.exit("README.md's table of figures is not what the result files say; run: make figures")
    README.write_text(wanted)


if __name__ == "__main__":
    main()
