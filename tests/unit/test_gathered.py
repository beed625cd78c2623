"""The gathered histogram shows what prometheus_client's own would show, also while other threads observe."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram

from quaestor.observability.gathered import Gathered

BUCKETS = (0.001, 0.01, 0.1, 1.0)
AMOUNTS = st.one_of(st.sampled_from((*BUCKETS, 0.0)), st.floats(min_value=0, max_value=10))


def _samples(histogram: Histogram) -> dict[tuple[str, str], float]:
    (metric,) = histogram.collect()
    return {
        (sample.name, sample.labels.get("le", "")): sample.value
        for sample in metric.samples
        if not sample.name.endswith("_created")
    }


@given(st.lists(st.lists(AMOUNTS, max_size=60), max_size=4))
def test_every_collection_shows_what_the_ordinary_histogram_shows(rounds: list[list[float]]) -> None:
    gathered = Gathered("g", "-", buckets=BUCKETS, registry=CollectorRegistry())
    ordinary = Histogram("g", "-", buckets=BUCKETS, registry=CollectorRegistry())
    for amounts in rounds:
        for amount in amounts:
            gathered.observe(amount)
            ordinary.observe(amount)
        assert _samples(gathered) == pytest.approx(_samples(ordinary))


def test_nothing_is_lost_or_counted_twice_while_others_observe_and_collect() -> None:
    gathered = Gathered("g", "-", buckets=BUCKETS, registry=CollectorRegistry())
    observers = [threading.Thread(target=lambda: [gathered.observe(0.05) for _ in range(20_000)]) for _ in range(4)]
    for thread in observers:
        thread.start()
    while any(thread.is_alive() for thread in observers):
        _samples(gathered)
    assert _samples(gathered)["g_count", ""] == 80_000
    assert _samples(gathered)["g_bucket", "0.1"] == 80_000
    assert _samples(gathered)["g_bucket", "0.01"] == 0
