"""Metrics: the document lists them all, and there are never more series than anybody has foreseen."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import structlog
from prometheus_client import Counter

from quaestor.cli.cluster_metrics import FAMILIES
from quaestor.model import CachedResponse, Operation, Query
from quaestor.observability import vocabularies as label_values
from quaestor.observability.families import Labelled
from quaestor.observability.removals import Removals
from quaestor.observability.telemetry import Telemetry
from quaestor.observability.vocabularies import MOST_NAMES, OTHER, widening
from quaestor.planning.plan import plan_query

ROOT = Path(__file__).parents[2]
SOURCES = [path for part in ("quaestor", "middleware", "cdn_adapters") for path in (ROOT / part).rglob("*.py")]


def families(telemetry: Telemetry) -> dict[str, list[str]]:
    """Of every metric its labels, by the name under which it is exposed."""
    families_found = {}
    for collector in telemetry.families.registry._collector_to_names:
        suffix = "_total" if isinstance(collector, Counter) else ""
        families_found[f"{collector._name}{suffix}"] = list(collector._labelnames)  # type: ignore[attr-defined]
    return families_found


def documented() -> dict[str, tuple[str, str]]:
    """Of every metric in the document, its labels and its sentence."""
    lines = (ROOT / "docs/metrics.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `quaestor_")]
    return {row[0].strip("`"): (row[1], row[2]) for row in rows}


def test_the_document_lists_every_metric_with_its_labels_and_a_sentence() -> None:
    known, described = families(Telemetry()), documented()
    for name, (_, grid_labels) in FAMILIES.items():
        assert known.setdefault(name, list(grid_labels)) == list(grid_labels), name
    assert described.keys() == known.keys()
    for name, (labels, sentence) in described.items():
        assert re.findall(r"`(\w+)`", labels) == known[name], name
        assert sentence.endswith("."), name


def test_the_document_names_only_values_that_a_label_can_have() -> None:
    telemetry = Telemetry()
    for name, (labels, _) in documented().items():
        for label, values in re.findall(r"`(\w+)`: ([\w, -]+)", labels):
            vocabulary = telemetry.families.vocabularies[name.removesuffix("_total")][label]
            assert vocabulary == set(values.split(", ")) or (
                vocabulary is not None and label == "precision" and set(values.split(", ")) <= vocabulary
            ), (name, label)


def test_every_label_has_a_vocabulary_or_a_limit() -> None:
    telemetry = Telemetry()
    for name, labels in families(telemetry).items():
        assert list(telemetry.families.vocabularies.get(name.removesuffix("_total"), {})) == labels


def test_any_labels_make_no_more_series_than_foreseen() -> None:
    telemetry = Telemetry()
    for stranger in ("/a?user=ann", "x" * 10_000, *map(str, range(1_000))):
        telemetry.requests.uncacheable.labels(stranger).inc()
        telemetry.requests.rest_problems.labels(stranger).inc()
    text = telemetry.exposition().decode()
    assert "user=ann" not in text
    assert text.count("quaestor_uncacheable_total{") == 1
    assert text.count("quaestor_rest_problems_total{") == MOST_NAMES + 1


def test_a_known_value_stays_itself_and_another_is_counted_as_other() -> None:
    telemetry = Telemetry()
    telemetry.requests.requests.labels("hit").inc(2)
    telemetry.requests.requests.labels("surprise").inc()
    value = telemetry.families.registry.get_sample_value
    assert value("quaestor_requests_total", {"outcome": "hit"}) == 2
    assert value("quaestor_requests_total", {"outcome": OTHER}) == 1


def test_a_wrong_number_of_labels_is_a_mistake() -> None:
    counter = Labelled(Counter("c", "c", ["a"], registry=None), [frozenset({"x"})])
    with pytest.raises(ValueError, match="zip"):
        counter.labels("x", "y")


def test_every_literal_that_the_code_counts_is_in_the_vocabulary_of_its_metric() -> None:
    """A value computed at run time is counted as `other` at worst; a literal must never be."""
    telemetry = Telemetry()
    vocabularies = telemetry.families.vocabularies
    for path in SOURCES:
        text = path.read_text()
        for group, name, arguments in re.findall(r"telemetry\.(\w+)\.(\w+)\.labels\(([^()]*)\)", text):
            labels = list(vocabularies[getattr(getattr(telemetry, group), name).name].items())
            for (label, vocabulary), argument in zip(labels, arguments.split(","), strict=True):
                for literal in re.findall(r'"([^"]+)"', argument):
                    assert vocabulary is None or literal in vocabulary, (path.name, name, label, literal)
        for part in re.findall(r'failure\(\s*"([a-z-]+)"', text):
            assert part in label_values.PARTS, (path.name, part)
        for why in re.findall(r'(?:drop|_on_left|_forget)\([^()]*, "([a-z-]+)"', text):
            assert why in label_values.LEFT, (path.name, why)
        if path.parts[-2] == "middleware":
            for reason in re.findall(r'(?:_withhold|pass_by)\("([a-z-]+)"', text):
                assert reason in label_values.REASONS, (path.name, reason)


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ({"filter": {"name": "x"}, "collation": {"locale": "de-SECRET"}}, "collation"),
        ({"filter": {"$jsonSchema": {"properties": {"a.b": {}}}}}, "json-schema"),
        ({"filter": {"name": {"$regex": "(*COMMIT)x"}}}, "regular-expression"),
        ({"filter": {"$text": {"$search": "x"}}}, "text"),
        ({"operation": Operation.AGGREGATE, "filter": {}, "pipeline": ({"$match": {"a": 1}}, {"$facet": {}})}, "leading-match"),
        ({"filter": {"a": 1}, "sort": (("score", {"$meta": "textScore"}),)}, "sort"),
        ({"filter": {"a": 1}, "let": {"x": "$b"}}, "variables"),
        ({"filter": {"a": 1}, "projection": {"a.$": 1}}, "projection"),
        ({"filter": {}, "operation": Operation.AGGREGATE, "pipeline": ({"$lookup": {
            "from": "makers", "localField": "m", "foreignField": "_id", "as": "o"}},)}, "join"),
    ],
)  # fmt: skip
def test_the_kind_of_a_widening_quotes_nothing_of_the_query(query: dict[str, object], kind: str) -> None:
    captured = Query(**({"namespace": "shop.items", "operation": Operation.FIND} | query))  # type: ignore[arg-type]
    reason = plan_query(captured).reason
    assert reason is not None
    assert widening(reason) == kind
    assert kind in label_values.WIDENED


def entry(key: str, etag: bytes = b'"1"') -> CachedResponse:
    return CachedResponse(
        key=key, status=200, headers=(), body=b"", etag=etag, stored_at_ms=0, fresh_until_ms=1, registrations=(), tags=(),
        resource=key,
    )  # fmt: skip


def test_an_answer_that_comes_back_as_it_was_was_invalidated_for_nothing() -> None:
    departures = Removals()
    departures.left(entry("a"), "invalidated")
    departures.judged("a", "exact")
    departures.left(entry("b"), "invalidated")
    departures.left(entry("c"), "demand")
    assert departures.why("a") == "invalidated"
    assert departures.returned(entry("a")) == ("exact", True)
    assert departures.returned(entry("b", etag=b'"2"')) == ("unknown", False)
    assert departures.returned(entry("c")) is None
    assert departures.why("a") == "absent"


def test_withdrawn_entries_were_not_invalidated() -> None:
    departures = Removals()
    departures.left(entry("a"), "invalidated")
    departures.judged("a", "withdrawn")
    assert departures.why("a") == "withdrawn"
    assert departures.returned(entry("a")) is None


def test_only_so_many_departures_are_remembered() -> None:
    departures = Removals(limit=2)
    for key in "abc":
        departures.left(entry(key), "demand")
    assert [departures.why(key) for key in "abc"] == ["absent", "demand", "demand"]


def test_observations_are_sorted_in_when_somebody_looks_and_when_there_are_very_many() -> None:
    telemetry = Telemetry()
    for n in range(2_500):
        telemetry.requests.miss_s.observe(0.001 if n % 2 else 3.0)
    read = telemetry.families.registry.get_sample_value
    assert read("quaestor_miss_seconds_count") == 2_500
    assert read("quaestor_miss_seconds_bucket", {"le": "0.001"}) == 1_250
    telemetry.requests.miss_s.observe(1.0)
    assert b"quaestor_miss_seconds_count 2501.0" in telemetry.exposition()
    assert len(telemetry.requests.miss_s._waiting) == 0  # type: ignore[attr-defined]


def test_a_failure_is_counted_although_nobody_reads_the_log() -> None:
    """A grid whose output was piped into something that ended has to go on."""
    reading, writing = os.pipe()
    os.close(reading)
    telemetry = Telemetry()
    unread = os.fdopen(writing, "w", buffering=1)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(unread), cache_logger_on_first_use=False)
    try:
        telemetry.event("spark.slots_back")
        telemetry.failure("grid", "spark.slots_missing", "2 of 5 slots")
    finally:
        structlog.reset_defaults()
        with pytest.raises(BrokenPipeError):
            unread.close()
    assert telemetry.failures.labels("grid")._value.get() == 1
