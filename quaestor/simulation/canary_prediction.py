"""Prediction of a canary's figures: both estimators of production replay a recorded trace, which is counted as an app counts.
Pure, and without numpy.

No browsers are drawn: only the requests that reached the app count, as the app will count them. The results of a canary are
chosen by chance. The trace's results are therefore split at random, many times, and the prediction is the range of the outcomes.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final

from quaestor.cache_sketch.sizing import DEFAULT
from quaestor.errors import ConfigurationError
from quaestor.ports import LifetimeEstimator
from quaestor.ttl.canary import Prediction
from quaestor.ttl.canary_counts import Counts, Meter, total
from quaestor.ttl.canary_rule import FIGURES, Figure, log_odds
from quaestor.ttl.chosen import ChosenEstimators
from quaestor.ttl.parameters import TtlParameters
from quaestor.ttl.trace_format import Changed, Filled, Record, Served, Withdrawn

SPLITS: Final = 200
LEAST_REQUESTS: Final = 200
LEAST_RESULTS: Final = 10
_TAIL: Final = 0.01


def predicted(
    records: Sequence[Record],
    *,
    now: LifetimeEstimator,
    chosen: LifetimeEstimator,
    share: int,
    delta_ms: int,
    started_ms: int = 0,
) -> dict[str, Prediction]:
    """Predictions by figure, from two replays of the trace in Python. Raises ConfigurationError for a trace with too few requests
    or results.

    now, chosen: new estimators with the present parameters, and with the canary's.
    share: share of the results, in percent.
    delta_ms: how old a client's sketch may be.
    started_ms: start of the trace, since the epoch.
    """
    before, after = (
        counted(records, estimator, delta_ms=delta_ms, started_ms=started_ms) for estimator in (now, chosen)
    )
    results = sorted(before.keys() & after.keys(), key=str)
    requests = sum(before[result].requests for result in results)
    if len(results) < LEAST_RESULTS or requests < LEAST_REQUESTS:
        raise ConfigurationError(
            f"the trace has {requests} requests for {len(results)} results with an estimated lifetime: a canary needs "
            f"{LEAST_REQUESTS} for {LEAST_RESULTS} at least; record for longer"
        )
    dice = random.Random(len(results))
    most = max(1, round(len(results) * share / 100))
    splits = [_split(dice.sample(results, most), before, after) for _ in range(SPLITS)]
    whole_before, whole_after = total(before.values()), total(after.values())
    return {name: _prediction(figure, splits, whole_before, whole_after) for name, figure in FIGURES.items()}


def predicted_of(
    records: Sequence[Record], *, now: TtlParameters, chosen: TtlParameters, share: int, delta_ms: int, started_ms: int
) -> dict[str, Prediction]:
    """Predictions of parameters: see predicted()."""
    estimators = (
        ChosenEstimators(parameters, false_positive_rate=DEFAULT.false_positive_rate) for parameters in (now, chosen)
    )
    return predicted(
        records, now=next(estimators), chosen=next(estimators), share=share, delta_ms=delta_ms, started_ms=started_ms
    )


def counted(
    records: Iterable[Record], estimator: LifetimeEstimator, *, delta_ms: int, started_ms: int = 0
) -> Mapping[Hashable, Counts]:
    """Counts of each result of a trace, with the lifetimes that this estimator gives."""
    by_result: dict[Hashable, Counts] = defaultdict(Counts)
    meter = Meter(by_result.__getitem__, delta_ms=delta_ms)
    for record in records:
        now_ms = started_ms + record.at_ms
        match record:
            case Filled() if record.given_ms is not None:
                given_ms = estimator.estimate_ms(
                    record.queries, write_rate_hz=record.rate_hz, now_ms=now_ms, kind=record.kind
                )
                estimator.observe_read(
                    record.queries, now_ms=now_ms, ttl_ms=record.watched_ms, given_ms=given_ms,
                    write_rate_hz=record.rate_hz, kind=record.kind,
                )  # fmt: skip
                meter.filled(record.result, record.queries, now_ms=now_ms, given_ms=given_ms)
            case Served():
                meter.served(record.result, record.times, now_ms=now_ms)
            case Changed():
                estimator.observe_invalidation(record.query, now_ms=now_ms)
                meter.changed(record.query, now_ms=now_ms)
            case Withdrawn():
                estimator.observe_withdrawal(record.query, now_ms=now_ms)
                meter.withdrawn(record.query)
    return by_result


def _split(
    canary: Sequence[Hashable], before: Mapping[Hashable, Counts], after: Mapping[Hashable, Counts]
) -> tuple[Counts, Counts]:
    """Counts of the canary's results with its own parameters, and with the parameters of the rest."""
    return total(after[result] for result in canary), total(before[result] for result in canary)


def _prediction(figure: Figure, splits: Sequence[tuple[Counts, Counts]], before: Counts, after: Counts) -> Prediction:
    def ratio(own: Counts, instead: Counts) -> float:
        events, trials = (getattr(before, name) - getattr(instead, name) for name in (figure.events, figure.trials))
        return log_odds(getattr(own, figure.events), getattr(own, figure.trials)) - log_odds(events, trials)

    ratios = sorted(ratio(*split) for split in splits)
    tail = round(_TAIL * len(ratios))
    now, chosen = (
        getattr(counts, figure.events) / max(1, getattr(counts, figure.trials)) for counts in (before, after)
    )
    return Prediction(low=ratios[tail], high=ratios[-1 - tail], now=now, chosen=chosen)
