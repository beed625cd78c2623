"""Data of the dashboard, source by source: history, lifetimes, heaviest results, and comparisons of a what-if."""

from __future__ import annotations

import json
from typing import Any

import pytest

from quaestor.dashboard.heaviest import HALF_LIFE_MS, MOST_RESULTS, HeaviestResults
from quaestor.dashboard.history import COLUMNS, SECONDS, History
from quaestor.dashboard.lifetimes import lifetimes
from quaestor.dashboard.process_report import VERSION
from quaestor.dashboard.simulating import candidates, newest
from quaestor.dashboard.snapshot import composed
from quaestor.dashboard.windows import Windows
from quaestor.observability import route_traffic
from quaestor.observability.hooks import AnswerKept
from quaestor.observability.readings import histogram, quantile_s, readings
from quaestor.observability.route_traffic import OTHERS, RouteTraffic
from quaestor.observability.telemetry import Telemetry
from quaestor.ttl.parameters import TtlParameters, Tuning
from quaestor.ttl.trace_format import Changed, Filled, Record, Served

NOW_MS = 1_700_000_000_000


def report(process: str, at_ms: int, **counts: dict[str, float]) -> dict[str, Any]:
    return {
        "version": VERSION, "process": process, "at_ms": at_ms, "serving": True, "readings": counts, "evicted_s": {},
        "outcomes": [], "judged": {}, "heaviest": [], "warnings": [], "quarantined": [], "routes": [], "break_even": {},
        "windows": Windows().report(counts, now_ms=at_ms),
    }  # fmt: skip


def last(history: History) -> dict[str, float]:
    return dict(zip(COLUMNS, history.points[-1], strict=True))


def test_rates_are_what_all_processes_did_in_a_second() -> None:
    """A process that comes, goes or begins anew makes no spike."""
    history = History()
    history.add([report("a", NOW_MS, hits={"memory": 1_000})], now_ms=NOW_MS)
    assert last(history)["memory"] == 0
    a = report("a", NOW_MS + 2_000, hits={"memory": 1_100}, invalidations={"add,exact": 4, "change,widened": 2})
    history.add([a, report("b", NOW_MS + 2_000, hits={"memory": 9_000})], now_ms=NOW_MS + 2_000)
    assert (last(history)["memory"], last(history)["exact"], last(history)["widened"]) == (50, 2, 1)
    again = report("a", NOW_MS + 3_000, hits={"memory": 5})
    history.add([again, report("b", NOW_MS + 3_000, hits={"memory": 9_010})], now_ms=NOW_MS + 3_000)
    assert last(history)["memory"] == 10


def test_deliveries_over_http_are_snapshots_and_changes() -> None:
    """Answers without records are no deliveries, and events of a stream count as messages."""
    history = History()
    names = ("snapshot", "changes", "unchanged", "gone", "refused", "stream")
    for second in (0, 1):
        counts = {name: second * 10.0**place for place, name in enumerate(names)}
        history.add([report("a", NOW_MS + 1_000 * second, live_http=counts)], now_ms=NOW_MS + 1_000 * second)
    assert last(history)["live_answers"] == 11


def test_of_levels_the_worst_counts_and_the_history_is_bounded() -> None:
    history = History()
    for i in range(SECONDS + 50):
        at_ms = NOW_MS + 1_000 * i
        levels = {"grid_lag_seconds": {"all": 0.5}, "purges_queued": {"varnish,waiting": 7, "varnish,dead": 9}}
        better = {"grid_lag_seconds": {"all": 0.1}, "purges_queued": {"varnish,waiting": 3}}
        history.add([report("a", at_ms, **levels), report("b", at_ms, **better)], now_ms=at_ms)
    assert len(history.points) == SECONDS
    assert (last(history)["lag_ms"], last(history)["purges_waiting"]) == (500, 7)


def test_a_second_in_which_nobody_reports_is_a_gap() -> None:
    """The gap is not a point of zeros; processes that return count from the next point on."""
    history = History()
    history.add([report("a", NOW_MS, hits={"memory": 1_000})], now_ms=NOW_MS)
    history.add([], now_ms=NOW_MS + 1_000)
    assert len(history.points) == 1
    history.add([report("a", NOW_MS + 9_000, hits={"memory": 9_000})], now_ms=NOW_MS + 9_000)
    assert last(history)["memory"] == 0


def test_windows_count_what_came_in_the_last_minutes() -> None:
    """One hit a second for two hours: each window has its seconds, within one sample; memory is bounded. Before an hour is over a
    process counts from its beginning."""
    windows = Windows()
    for second in range(0, 7_201, 5):
        counted = {"requests": {"hit": float(second), "bypass": 0.0}}
        windows.sample(counted, now_ms=NOW_MS + second * 1_000)
        if second == 600:
            young = windows.report(counted, now_ms=NOW_MS + second * 1_000)
            assert [young[span]["requests"]["hit"] for span in ("60", "300", "3600")] == [60, 300, 600]
    assert len(windows) < 140
    windows_report = windows.report({"requests": {"hit": 7_203.0}}, now_ms=NOW_MS + 7_203_000)
    for span in (60, 300, 3_600):
        grown = windows_report[str(span)]["requests"]["hit"]
        assert span <= grown <= span + (60 if span == 3_600 else 5)
    assert windows_report["60"]["hits"] == {}


def test_windows_and_routes_of_all_processes_are_added() -> None:
    a, b = report("a", NOW_MS, requests={"hit": 3}), report("b", NOW_MS, requests={"hit": 4, "miss": 1})
    route = {
        "route": "GET items",
        "hits": 3,
        "misses": 1,
        "passed": 0,
        "why": {"absent": 1},
        "collections": ["shop.items"],
    }
    a["routes"] = [route]
    b["routes"] = [
        {**route, "hits": 1, "why": {"absent": 1, "clock": 2}, "collections": ["shop.prices"]},
        {**route, "route": "GET busy", "hits": 90},
    ]
    a["break_even"], b["break_even"] = {"GET items": 0.1}, {"GET items": 0.3}
    snapshot = composed([a, b], now_ms=NOW_MS, published=None, canary=None)
    assert snapshot["windows"]["60"]["requests"] == {"hit": 7, "miss": 1}
    a["windows"]["300"]["evicted_s"] = {"0.1": 98.0, "+Inf": 98.0}
    b["windows"]["300"]["evicted_s"] = {"0.01": 1.0, "0.1": 1.0, "2.5": 2.0, "+Inf": 2.0}
    recent = composed([a, b], now_ms=NOW_MS, published=None, canary=None)["windows"]["300"]
    assert recent["evicted_ms"] == {"p50": 100.0, "p99": 100.0}
    assert composed([b], now_ms=NOW_MS, published=None, canary=None)["windows"]["300"]["evicted_ms"]["p99"] == 2_500.0
    assert [row["route"] for row in snapshot["routes"]] == ["GET busy", "GET items"]
    assert snapshot["routes"][1] == {
        "route": "GET items", "hits": 4, "misses": 2, "passed": 0, "why": {"absent": 2, "clock": 2},
        "collections": ["shop.items", "shop.prices"], "break_even": 0.3,
    }  # fmt: skip


def test_there_is_a_cdn_if_somebody_has_a_queue_for_it() -> None:
    with_one = report("b", NOW_MS, purges_queued={"varnish,waiting": 0})
    for reports, expected in (([report("a", NOW_MS)], False), ([report("a", NOW_MS), with_one], True)):
        assert composed(reports, now_ms=NOW_MS, published=None, canary=None)["cdn"] is expected


def test_routes_are_counted_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers may ask for any path: what is more than the bound is counted together."""
    monkeypatch.setattr(route_traffic, "MOST_ROUTES", 3)
    traffic = RouteTraffic()
    for i in range(100):
        traffic.of(f"GET /{i}").passed_by("no-reads")
    assert next((row["route"], row["passed"]) for row in traffic.report()) == (OTHERS, 97)
    assert len(traffic.report()) == 4


def test_lifetimes_are_drawn_by_kind_and_all_together() -> None:
    """Judged and censored outcomes are counted, with no more points than a plot needs."""
    outcomes = [["a", 1_000, 500, True], ["a", 1_000, 3_000, True], ["a", 1_000, 200, False]]
    outcomes += [["b", 100 + i, 2 * i + 1, True] for i in range(500)]
    everything, b, a = lifetimes(outcomes, {"a": (20, 10, 1.5)})
    assert [data["kind"] for data in (everything, b, a)] == ["", "b", "a"]
    assert (a["sampled"], a["judged"], a["changed"], a["learned"]) == (3, 2, 0.5, [20, 10, 1.5])
    assert a["survival"] == [[500, 0.5], [3_000, 0.0]]
    assert everything["sampled"] == 503
    assert max(len(b[name]) for name in ("survival", "given", "errors", "calibration")) <= 80
    assert b["errors"][-1][1] == 1.0
    assert lifetimes([], {}) == [lifetimes([], {})[0]]


def kept(key: str, cost_ms: int) -> AnswerKept:
    return AnswerKept(
        key=key, query_ids=("q",), kind="k", write_rate_hz=0.0, given_ms=1_000, cost_ms=cost_ms, depends=lambda: "d"
    )


def test_the_heaviest_results_are_those_that_cost_most_lately() -> None:
    """In bounded memory; a light crowd does not push them out, and time does."""
    now_ms = NOW_MS
    heaviest = HeaviestResults(lambda: now_ms)
    for _ in range(10):
        heaviest(kept("heavy", 100))
    for i in range(5 * MOST_RESULTS):
        heaviest(kept(f"light{i}", 1))
    top = heaviest.top(3, lambda _: {"ttl_ms": 1})
    assert (top[0]["key"], top[0]["cost_ms"], top[0]["times"], top[0]["depends"]) == ("heavy", 1_000, 10, "d")
    assert len(heaviest._results) <= MOST_RESULTS
    now_ms += 10 * HALF_LIFE_MS
    heaviest(kept("new", 50))
    assert heaviest.top(1, lambda _: {})[0]["key"] == "new"


def test_reports_are_put_together() -> None:
    """Counters are added, of gauges the worst counts, quantiles are of all observations."""
    a = report("a", NOW_MS, requests={"hit": 3}, sketch_fill={"union": 0.2}, sketch_lifetime_factor={"union": 0.5})
    b = report(
        "b", NOW_MS, requests={"hit": 4, "miss": 1}, sketch_fill={"union": 0.3}, sketch_lifetime_factor={"union": 1}
    )
    a |= {"evicted_s": {"0.01": 99, "0.1": 99, "+Inf": 99}, "warnings": ["w"]}
    b |= {"evicted_s": {"0.01": 0, "0.1": 1, "+Inf": 1}, "warnings": ["w"]}
    entry = {"key": "/x", "cost_ms": 5.0, "times": 1}
    a["heaviest"], b["heaviest"] = [entry, {**entry, "key": "/y", "cost_ms": 7.0}], [entry]
    snapshot = composed([a, b], now_ms=NOW_MS, published=3, canary={"number": 3})
    assert snapshot["sums"]["requests"] == {"hit": 7, "miss": 1}
    assert (snapshot["highest"]["sketch_fill"], snapshot["lifetime_factor"]) == ({"union": 0.3}, {"union": 0.5})
    assert snapshot["evicted_ms"] == {"p50": 10.0, "p99": 10.0}
    assert [(each["key"], each["cost_ms"], each["times"]) for each in snapshot["heaviest"]] == [
        ("/x", 10, 2),
        ("/y", 7, 1),
    ]
    assert (snapshot["warnings"], snapshot["published"], snapshot["canary"]) == (["w"], 3, {"number": 3})
    json.dumps(composed([], now_ms=NOW_MS, published=None, canary=None), allow_nan=False)


def test_readings_are_the_metrics_by_label() -> None:
    telemetry = Telemetry()
    telemetry.requests.requests.labels("hit").inc(3)
    telemetry.invalidations.latency_s.observe(0.004)
    registry = telemetry.families.registry
    assert readings(registry)["requests"] == {"hit": 3}
    buckets = histogram(registry, "quaestor_invalidation_latency_seconds")
    assert quantile_s(buckets, 0.5) == 0.005
    assert quantile_s({}, 0.5) is None
    assert histogram(registry, "nothing") == {}
    assert quantile_s({"1.0": 0, "+Inf": 2}, 0.5) is None


@pytest.mark.parametrize("estimator", ["lifetimes", "static"])
def test_the_comparison_holds_the_present_the_chosen_and_other_quantiles(estimator: str) -> None:
    """Where there is a quantile; collections with numbers of their own get it too."""
    chosen = TtlParameters(default=Tuning(estimator=estimator), kinds={"a.b": Tuning(estimator=estimator, alpha=0.5)})
    candidates_found = candidates(TtlParameters(), chosen)
    assert list(candidates_found)[:2] == ["now", "chosen"]
    assert len(candidates_found) == (8 if estimator == "lifetimes" else 2)
    if estimator == "lifetimes":
        assert candidates_found["quantile 0.9"].kinds["a.b"] == Tuning(quantile=0.9, alpha=0.5)


def test_the_newest_part_of_a_trace_knows_what_it_serves() -> None:
    records: list[Record] = [Filled(i, f"r{i}", (f"q{i}",), 1_000, None, 0.0, "k") for i in range(100)]
    records += [Served(200 + i, "r7", 3) for i in range(10)] + [Changed(300, "q7")]
    part = newest(records, 11)
    assert part[0] == Filled(200, "r7", ("q7",), 1_000, None, 0.0, "k")
    assert part[1:] == records[-11:]
    assert newest(records, 1_000) == records
