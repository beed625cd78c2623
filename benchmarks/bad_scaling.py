"""Channels on more workers: figures 46 to 48 of the paper on Big Active Data, as far as two cores can show them.

Use case `nearby` on Spark, with one and with two workers of one core each (`local-cluster`). Both share two cores with the driver
and with ingestion, so the second worker shows the overhead of a cluster, not its speed-up.

The rest is calculated, not measured. A run with S subscribers and N new hateful tweets takes on n workers

    fixed + tweet * N + subscriber * S / n        seconds.

`fixed`: planning, publication. `tweet`: of each new tweet, which every worker gets. `subscriber`: a subscriber's place and
parameters, which the workers divide. The constants are fitted to the measured runs of one worker. `model` states how far the fit
is off, for one worker and for two. Left out: shuffles over a network, skew, and ingestion on other machines.

Result: benchmarks/results/bad_scaling.json. Run: python -m benchmarks.bad_scaling --keep
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from benchmarks import harness
from benchmarks.bad_channels import measured
from benchmarks.scalability.cell_model import constants
from benchmarks.workloads.police import HATEFUL, Setup
from quaestor.continuous.executors.choice import executor_of

SUBSCRIBERS: Final = (10_000, 60_000)
RATES: Final = (80, 640)
WORKERS: Final = (1, 2)
WORKER_MB: Final = 1_024
WARM_UP: Final = 1
"""Runs of each setup that do not count, besides the first: the JVM still compiles."""
NODES: Final = (1, 2, 4, 8, 16)
PERIOD_S: Final = 30.0
"""Of the figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Median of the measured runs of a setup.

    tweets: new hateful ones in a run.
    """

    workers: int
    subscribers: int
    tweets: float
    total_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Seconds of a run; see above."""

    fixed_s: float
    tweet_s: float
    subscriber_s: float

    def run_s(self, *, subscribers: float, tweets: float, workers: int) -> float:
        """Return the calculated seconds of a run."""
        return self.fixed_s + self.tweet_s * tweets + self.subscriber_s * subscribers / workers

    def most_subscribers(self, *, tweets: float, workers: int, period_s: float) -> int:
        """Return the number of subscribers with which a run takes as long as its period."""
        rest_s = period_s - self.fixed_s - self.tweet_s * tweets
        return max(0, int(rest_s * workers / self.subscriber_s)) if self.subscriber_s > 0 else 0

    def off(self, points: Sequence[Point]) -> list[float]:
        """Return calculated over measured of each point."""
        return [
            round(
                self.run_s(subscribers=point.subscribers, tweets=point.tweets, workers=point.workers) / point.total_s, 2
            )
            for point in points
        ]


def fitted(points: Sequence[Point]) -> Model:
    """Return the model with the least squares of relative deviations; constants below zero are zero."""
    factors = [[1.0, point.tweets, point.subscribers / point.workers] for point in points]
    fixed, tweet, subscriber = (
        max(0.0, constant) for constant in constants(factors, [point.total_s for point in points])
    )
    return Model(fixed_s=fixed, tweet_s=tweet, subscriber_s=subscriber)


def calculated(model: Model) -> dict[str, Any]:
    """Return the three figures by the model, with the paper's parameters."""

    def tweets(rate: int) -> float:
        return rate * PERIOD_S / HATEFUL

    return {
        "figure_46": {
            "what": "seconds of a run: 140,000 subscribers, 160 tweets/s, period 30 s",
            "nodes": {n: round(model.run_s(subscribers=140_000, tweets=tweets(160), workers=n), 2) for n in NODES},
        },
        "figure_47": {
            "what": "most subscribers within 30 s at 160 tweets/s",
            "nodes": {n: model.most_subscribers(tweets=tweets(160), workers=n, period_s=PERIOD_S) for n in NODES},
        },
        "figure_48": {
            "what": "most subscribers within 30 s at 40 tweets/s for each node",
            "nodes": {n: model.most_subscribers(tweets=tweets(40 * n), workers=n, period_s=PERIOD_S) for n in NODES},
        },
    }


def point_of(setup: Setup, workers: int, *, period_s: float, runs: int) -> Point:
    """Measure one setup with so many workers."""
    executor = executor_of("spark", f"local-cluster[{workers},1,{WORKER_MB}]")
    try:
        figures = measured(setup, executor, period_s=period_s, runs=WARM_UP + runs)["runs"][WARM_UP:]
    finally:
        executor.close()
    point = Point(
        workers=workers,
        subscribers=setup.subscribers,
        tweets=statistics.median(run["tweets"] for run in figures) / HATEFUL,
        total_s=statistics.median(run["total_s"] for run in figures),
    )
    print(point, flush=True)
    return point


def main() -> None:
    """Read the arguments, measure, and calculate."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--period", type=float, default=5.0, help="seconds between the measured runs")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="write the result to benchmarks/results")
    given = parser.parse_args()
    points = [
        point_of(
            Setup(use_case="nearby", subscribers=subscribers, areas=1, rate=rate, grouped=False),
            workers,
            period_s=given.period,
            runs=given.runs,
        )
        for workers, subscribers, rate in product(WORKERS, SUBSCRIBERS, RATES)
    ]
    of_one, of_two = ([point for point in points if point.workers == workers] for workers in WORKERS)
    model = fitted(of_one)
    result = {
        "measured": [{name: getattr(point, name) for name in Point.__slots__} for point in points],
        "two_workers_over_one": [round(two.total_s / one.total_s, 2) for one, two in zip(of_one, of_two, strict=True)],
        "model": {name: getattr(model, name) for name in Model.__slots__}
        | {"calculated_over_measured_of_one": model.off(of_one), "calculated_over_measured_of_two": model.off(of_two)},
        "calculated": calculated(model),
    }
    harness.report("bad_scaling", result, keep=given.keep)


if __name__ == "__main__":
    main()
