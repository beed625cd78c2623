"""Families of metrics on one registry: their names, their labels, and a bounded number of series.

A value outside a label's vocabulary counts as `other`. Of names from configuration or code, only the first 64 have series of
their own. The number of series is therefore always bounded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from quaestor.first_use import FirstUse
from quaestor.observability.vocabularies import MOST_NAMES, OTHER, Vocabulary

if TYPE_CHECKING:
    import prometheus_client
    from prometheus_client import Counter, Gauge, Histogram
else:
    prometheus_client = FirstUse("prometheus_client")

_NAME = re.compile(r"[a-z0-9_-]{1,64}")
_LATENCY_BUCKETS_S = (0.001, 0.002, 0.003, 0.005, 0.008, 0.012, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)

M = TypeVar("M", "Counter", "Gauge", "Histogram")


class Labelled(Generic[M]):
    """Metric whose labels take only the values of their vocabularies.

    name: its declared name, `quaestor_...`.
    """

    def __init__(self, metric: M, vocabularies: Sequence[Vocabulary], *, name: str = "") -> None:
        self.name = name
        self._metric: M = metric
        self._vocabularies = vocabularies
        self._named: list[set[str]] = [set() for _ in vocabularies]
        self._series: dict[tuple[str, ...], M] = {}

    def labels(self, *values: str) -> M:
        """Return the series of these values, in the declared order of the labels. Raises ValueError for too many or few."""
        series = self._series.get(values)
        if series is None:
            bounded = tuple(_bounded(*place) for place in zip(values, self._vocabularies, self._named, strict=True))
            series = self._metric.labels(*bounded)
            if bounded == values:  # so the dictionary has no more values than series
                self._series[values] = series
        return series

    def remove(self, *values: str) -> None:
        """Forget the series of these values. No error if there is none."""
        self._series.pop(values, None)
        with suppress(KeyError):
            self._metric.remove(*values)


def _bounded(value: str, vocabulary: Vocabulary, named: set[str]) -> str:
    if vocabulary is not None:
        return value if value in vocabulary else OTHER
    if value not in named:
        if len(named) >= MOST_NAMES or _NAME.fullmatch(value) is None:
            return OTHER
        named.add(value)
    return value


class Families:
    """Prometheus registry, with metrics `quaestor_*` on it.

    registry: of prometheus_client; one for each Quaestor, so that several can live in one process.
    vocabularies: allowed values, by metric and by label.
    """

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self.vocabularies: dict[str, dict[str, Vocabulary]] = {}

    def counter(self, name: str, text: str) -> Counter:
        """Return a counter without labels."""
        return prometheus_client.Counter(f"quaestor_{name}", text, registry=self.registry)

    def counters(self, name: str, text: str, **labels: Vocabulary) -> Labelled[Counter]:
        """Return counters by label, each with its vocabulary."""
        metric = prometheus_client.Counter(f"quaestor_{name}", text, list(labels), registry=self.registry)
        return self._labelled(metric, name, labels)

    def gauge(self, name: str, text: str) -> Gauge:
        """Return a gauge without labels."""
        return prometheus_client.Gauge(f"quaestor_{name}", text, registry=self.registry)

    def gauges(self, name: str, text: str, **labels: Vocabulary) -> Labelled[Gauge]:
        """Return gauges by label, each with its vocabulary."""
        metric = prometheus_client.Gauge(f"quaestor_{name}", text, list(labels), registry=self.registry)
        return self._labelled(metric, name, labels)

    def histogram(self, name: str, text: str) -> Histogram:
        """Return a histogram of seconds without labels, cheap to observe."""
        from quaestor.observability.gathered import Gathered  # a class of prometheus_client's: see docs/adr/0023

        return Gathered(f"quaestor_{name}", text, buckets=_LATENCY_BUCKETS_S, registry=self.registry)

    def histograms(self, name: str, text: str, **labels: Vocabulary) -> Labelled[Histogram]:
        """Return histograms of seconds by label, each with its vocabulary."""
        metric = prometheus_client.Histogram(
            f"quaestor_{name}", text, list(labels), buckets=_LATENCY_BUCKETS_S, registry=self.registry
        )
        return self._labelled(metric, name, labels)

    def _labelled(self, metric: M, name: str, labels: dict[str, Vocabulary]) -> Labelled[M]:
        self.vocabularies[f"quaestor_{name}"] = labels
        return Labelled(metric, list(labels.values()), name=f"quaestor_{name}")
