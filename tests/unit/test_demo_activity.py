"""The live page shows the reports of the workers, the database and Varnish."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from itertools import islice

import pytest

from quaestor.demo import traffic
from quaestor.demo.activity import Activity, Effect, WorkerReport, percentiles
from quaestor.demo.live import describe
from quaestor.demo.progress import Progress
from quaestor.demo.reporter import Reporter
from quaestor.demo.steps import Steps, percentiles_ms
from quaestor.observability.telemetry import Telemetry
from quaestor.testing.served_from import ServedFrom, served_from


def report(worker: int, **changes: object) -> WorkerReport:
    given: dict[str, object] = {
        "worker": worker,
        "requests": {"hit": 3, "miss": 1},
        "invalidations": {"exact": 2, "widened": 1},
        "uncacheable": {},
        "evicted": 1,
        "registrations": 4,
        "serving": True,
    }
    return WorkerReport.model_validate(given | changes)


def test_requests_and_evictions_add_up_over_workers_but_an_invalidation_counts_once() -> None:
    activity = Activity()
    activity.absorb(report(1), now_ms=0)
    activity.absorb(report(2, invalidations={"exact": 1}), now_ms=0)
    shown = activity.snapshot(after=0, now_ms=100)
    assert shown["app"] == {"requests": 8, "hits": 6, "misses": 2, "bypassed": 0}
    assert shown["invalidations"] == {"exact": 2, "widened": 1}
    assert (shown["evicted"], shown["registrations"], shown["workers"], shown["serving"]) == (2, 8, 2, True)


def test_a_later_report_replaces_the_earlier_one_of_the_same_worker() -> None:
    activity = Activity()
    activity.absorb(report(1), now_ms=0)
    activity.absorb(report(1, requests={"hit": 10}), now_ms=1)
    assert activity.snapshot(after=0, now_ms=2)["app"]["requests"] == 10


def test_a_silent_worker_no_longer_serves_but_its_counts_stay() -> None:
    activity = Activity()
    activity.absorb(report(1), now_ms=0)
    shown = activity.snapshot(after=0, now_ms=10_000)
    assert (shown["workers"], shown["serving"], shown["app"]["requests"]) == (0, False, 4)


def test_latencies_run_from_the_write_and_are_never_negative() -> None:
    activity = Activity()
    effects = [
        Effect(keys=("a",), written_at_ms=100, evicted_at_ms=104, purged_at_ms=110),
        Effect(keys=("b",), written_at_ms=100, evicted_at_ms=99),
    ]
    activity.absorb(report(1, effects=effects), now_ms=200)
    shown = activity.snapshot(after=0, now_ms=200)
    assert shown["evicted_ms"] == {"p50": 0, "p99": 4}
    assert shown["purged_ms"] == {"p50": 10, "p99": 10}
    assert [event["purged_ms"] for event in shown["events"]] == [10, None]


def test_each_event_is_sent_once_to_a_page_that_names_its_last_one() -> None:
    activity = Activity()
    activity.wrote("UA 1 JFK–LAX boarding", now_ms=1)
    first = activity.snapshot(after=0, now_ms=2)
    activity.wrote("UA 1 JFK–LAX departed", now_ms=3)
    second = activity.snapshot(after=first["events"][-1]["sequence"], now_ms=4)
    assert [event["text"] for event in second["events"]] == ["UA 1 JFK–LAX departed"]
    assert second["writes"] == 2


def test_percentiles_are_values_that_occurred() -> None:
    assert percentiles([]) is None
    assert percentiles([7]) == {"p50": 7, "p99": 7}
    assert percentiles(list(range(1, 201))) == {"p50": 100, "p99": 198}
    assert percentiles_ms([n / 2 for n in range(1, 201)]) == {"p50": 50.0, "p99": 99.0}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"cache-status": "Quaestor; hit; ttl=3, Varnish; hit; ttl=2"}, ServedFrom.VARNISH),
        ({"cache-status": "Quaestor; fwd=miss; stored, Varnish; hit; ttl=2"}, ServedFrom.VARNISH),
        ({"cache-status": "Quaestor; hit; ttl=3, Varnish; fwd=miss; stored"}, ServedFrom.APP),
        ({"cache-status": "Quaestor; hit"}, ServedFrom.APP),
        ({"cache-status": "Other; hit, Quaestor; fwd=miss; stored"}, ServedFrom.HANDLER),
        ({"cache-status": "Quaestor; fwd=bypass; detail=hit"}, ServedFrom.HANDLER),
        ({"cache-status": "Quaestor; fwd=uri-miss; collapsed"}, ServedFrom.APP),
        ({}, ServedFrom.HANDLER),
    ],
)
def test_the_answering_part_is_read_from_the_headers(headers: dict[str, str], expected: ServedFrom) -> None:
    assert served_from(headers) is expected


def test_a_worker_reports_its_totals_and_each_effect_once() -> None:
    telemetry = Telemetry()
    telemetry.requests.requests.labels("hit").inc(3)
    telemetry.invalidations.invalidations.labels("add", "exact").inc(1)
    telemetry.invalidations.invalidations.labels("remove", "exact").inc(1)
    telemetry.invalidations.evicted.inc()
    telemetry.grid.serving.set(1)
    reporter = Reporter(telemetry, "http://127.0.0.1:1")
    reporter.observe(Effect(keys=("k",), written_at_ms=1, evicted_at_ms=2, exact=True))
    first, second = reporter.report(), reporter.report()
    assert (first.requests, first.invalidations, first.evicted, first.serving) == ({"hit": 3}, {"exact": 2}, 1, True)
    assert [(effect.keys, effect.exact) for effect in first.effects] == [(("k",), True)]
    assert second.effects == ()
    assert second.requests == first.requests


def test_the_script_prints_one_json_object_a_step_and_a_skipped_step_breaks_nothing() -> None:
    stream = io.StringIO()
    steps = Steps(stream)
    steps.record("a", True, {"from": "app"}, 1.5)
    steps.skip("b", "no Varnish")
    assert steps.held
    steps.record("c", False, "still the old data")
    assert not steps.held
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["step"], line["ok"], line["latency_ms"]) for line in lines] == [
        ("a", True, 1.5),
        ("b", None, None),
        ("c", False, None),
    ]


@pytest.mark.parametrize(
    ("operation", "flight", "text"),
    [
        ("update", {"status": "boarding"}, "UA 1 JFK–LAX boarding"),
        ("update", {"status": "departed", "dep_delay": 12}, "UA 1 JFK–LAX departed, 12 min late"),
        ("update", {"status": "departed", "dep_delay": -3}, "UA 1 JFK–LAX departed"),
        ("delete", None, "delete 2013-07-04:UA:1:JFK"),
    ],
)
def test_a_write_is_described_in_a_few_words(operation: str, flight: dict[str, object] | None, text: str) -> None:
    whole = {"carrier": "UA", "flight": 1, "origin": "JFK", "dest": "LAX"} | flight if flight else {}
    assert describe(operation, {"_id": "2013-07-04:UA:1:JFK"}, whole) == text


def test_the_traffic_asks_more_often_for_what_ranks_higher_and_for_everything_in_the_end() -> None:
    known = traffic.paths(["2013-07-04:UA:1:JFK"], "2013-07-04")
    drawn = Counter(islice(traffic.choices(known, random.Random(1)), 20_000))
    assert set(drawn) == set(known)
    assert drawn[known[0]] > drawn[known[9]] > drawn[known[-1]]


def test_progress_off_a_terminal_is_one_line_a_step() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    with progress.step("mongod") as step:
        step.note("half way")
        step.note("ready")
    with pytest.raises(ValueError, match="no"), progress.step("varnish"):
        raise ValueError("no")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("✓ mongod")
    assert lines[0].endswith("ready")
    assert lines[1].startswith("✗ varnish")
