"""The simulator's prediction of the same figure, before the measurement: from distances and service times without load.

The simulator receives the same requests that the connections draw, at the pace that it predicts itself. A connection asks again
after its answer, so the rate follows from the mean latency, and the latency from the rate. The simulator never receives a
figure of the load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from benchmarks.query_caching.app import DATABASE as NAME
from benchmarks.query_caching.load import CLIENTS, LAYERS
from benchmarks.query_caching.mix import COLLECTIONS, READS, RECORDS, RESOURCES, WRITES, Mix, Request, changed, resource
from benchmarks.query_caching.service_times import Latency, ServiceTimes
from quaestor.client.sketches import SHOWN_MS, SKEW_MS
from quaestor.simulation.comparison import production
from quaestor.simulation.simulate import System, latencies_ms, simulated
from quaestor.simulation.workload import Workload
from quaestor.ttl.parameters import TtlParameters

_GUESS_MS: Final = 10.0
_ROUNDS: Final = 8
_AHEAD_S: Final = (SHOWN_MS + SKEW_MS) / 1_000
"""The lead of the server's clock that clients assume."""
_CLOSE: Final = 0.01
"""The pace is found when the mean latency moves by less than this share."""
_WARMING: Final = CLIENTS
"""The client that asks for everything beforehand."""


@dataclass(frozen=True, slots=True)
class Step:
    """One number of connections: the seed of their requests, and for how long they run before they are counted, and then."""

    seed: str
    connections: int
    settle_s: float
    seconds: float

    @property
    def length_s(self) -> float:
        """From the first request to the last."""
        return self.settle_s + self.seconds


@dataclass(frozen=True, slots=True)
class _Events:
    """Reads (when, of what, by whom) and writes (when, of what), in any order."""

    reads: tuple[tuple[float, int, int], ...] = ()
    writes: tuple[tuple[float, int], ...] = ()

    def __add__(self, other: _Events) -> _Events:
        return _Events(self.reads + other.reads, self.writes + other.writes)


def uncached(times: ServiceTimes, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Predictions for the set-up in which the database answers everything."""
    drawn_ms = latencies_ms(np.array([0.0, 0.0, 0.0, 1.0]), _system(times, browsers=False, delta_s=1.0), 0)
    mean_ms = float(drawn_ms.mean())
    return [
        {
            "throughput_hz": round((1 - WRITES) * _pace_hz(step.connections, mean_ms, times, memory=0.0), 1),
            "p50_ms": round(float(np.quantile(drawn_ms, 0.5)), 3),
            "p99_ms": round(float(np.quantile(drawn_ms, 0.99)), 3),
            "mean_ms": round(mean_ms, 3),
            "layers": dict.fromkeys(LAYERS, 0.0) | {LAYERS[-1]: 1.0},
            "stale": 0.0,
            "stale_max_s": 0.0,
        }
        for step in steps
    ]


def cached(
    times: ServiceTimes, steps: Sequence[Step], *, browsers: bool, delta_s: float, warm_s: float
) -> list[dict[str, Any]]:
    """Predictions for a set-up with a CDN, step by step; what was kept stays.

    warm_s: how long it took to ask for everything beforehand.
    """
    system = _system(times, browsers=browsers, delta_s=delta_s)
    history = _Events(reads=tuple((warm_s * i / RESOURCES, i, _WARMING) for i in range(RESOURCES)))
    begun_s, write_times = warm_s, []
    for step in steps:
        drawn = _Drawn(step)
        mean_ms, memory = _GUESS_MS, 0.0
        for _ in range(_ROUNDS):
            pace_hz = _pace_hz(step.connections, mean_ms, times, memory=memory)
            events = drawn.at(pace_hz, begun_s, times.write_ms / 1_000)
            figures = simulated(
                _workload(history + events), production(TtlParameters()), system, counted_from_s=begun_s + step.settle_s
            )
            moved, mean_ms, memory = abs(figures.mean_ms / mean_ms - 1), figures.mean_ms, figures.browser
            if moved < _CLOSE:
                break
        write_times.append(
            {
                "throughput_hz": round((1 - WRITES) * _pace_hz(step.connections, mean_ms, times, memory=memory), 1),
                "p50_ms": round(figures.p50_ms, 3),
                "p99_ms": round(figures.p99_ms, 3),
                "mean_ms": round(mean_ms, 3),
                "layers": {layer: round(float(getattr(figures, layer)), 4) for layer in LAYERS},
                "stale": round(figures.stale, 5),
                "stale_max_s": round(figures.stale_max_s, 3),
            }
        )
        history, begun_s = history + events, begun_s + step.length_s
    return write_times


def _pace_hz(connections: int, mean_ms: float, times: ServiceTimes, *, memory: float) -> float:
    """Requests a second of so many connections, which wait for each answer; no more than the clients' process can ask for.

    memory: share of the reads that are answered from it.
    """
    own_ms = memory * times.memory_cpu_ms + (1 - memory) * times.network_cpu_ms
    around_ms = max(0.0, times.memory_cpu_ms - (times.memory_ms or (0.0, 0.0))[0])
    cycle_ms = (1 - WRITES) * mean_ms + WRITES * times.write_ms + around_ms
    return min(connections * 1_000 / cycle_ms, 1_000 / own_ms)


def _system(times: ServiceTimes, *, browsers: bool, delta_s: float) -> System:
    """The set-up as the simulator knows it: each layer takes what it adds to the one before it."""
    none: Latency = (0.0, 0.0)
    to_cdn, to_app = times.cdn_ms or none, times.app_ms or times.cdn_ms or none

    def added(latency: Latency, before: Latency) -> Latency:
        return max(0.0, latency[0] - before[0]), max(0.0, latency[1] ** 2 - before[1] ** 2) ** 0.5

    # A client loads a sketch when its newest is half of Δ old, by the server's clock as the client counts it.
    loads_s = max(1.0, delta_s / 2 - _AHEAD_S)
    return System(
        delta_s=loads_s, detection_s=min(0.005, times.purged_s), purge_s=max(0.0, times.purged_s - 0.005),
        browsers=browsers, ahead_s=_AHEAD_S, edges=1, browser_ms=times.memory_ms or none, client_cdn_ms=to_cdn,
        cdn_app_ms=added(to_app, to_cdn), database_ms=added(times.database_ms, to_app),
    )  # fmt: skip


class _Drawn:
    """Requests that the connections of a step draw, as many of each as are needed."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._mixes = [Mix(step.seed, i) for i in range(step.connections)]
        self._requests: list[list[Request]] = [[] for _ in self._mixes]

    def at(self, pace_hz: float, begun_s: float, write_s: float) -> _Events:
        """Their reads and writes at so many requests a second, evenly.

        write_s: from when a write is asked for until it is acknowledged: from then on what does not show it is called stale.
        """
        connections = len(self._mixes)
        every_s = connections / pace_hz
        needed = int(self._step.length_s / every_s)
        reads, writes = [], []
        for i, (mix, requests) in enumerate(zip(self._mixes, self._requests, strict=True)):
            while len(requests) < needed:
                requests.append(mix.next())
            from_s = begun_s + every_s * i / connections
            for number, request in enumerate(requests[:needed]):
                at_s = from_s + number * every_s
                if request.kind in READS:
                    reads.append((at_s, resource(request), i % CLIENTS))
                else:
                    writes += [(at_s + write_s, key) for key in changed(request)]
        return _Events(tuple(reads), tuple(writes))


def _workload(events: _Events) -> Workload:
    reads, writes = sorted(events.reads), sorted(events.writes)
    read_s, read_of, read_by = zip(*reads, strict=True)
    return Workload(
        name="fig58", results=RESOURCES, clients=CLIENTS + 1,
        read_s=np.array(read_s), read_of=np.array(read_of, dtype=np.int32), read_by=np.array(read_by, dtype=np.int32),
        write_s=np.array([at_s for at_s, _ in writes]), write_of=np.array([of for _, of in writes], dtype=np.int32),
        # Nothing has been written when the application asks for the first lifetimes.
        rates_hz=np.zeros(RESOURCES), kinds=_kinds(),
    )  # fmt: skip


def _kinds() -> tuple[str, ...]:
    records = tuple(f"{NAME}.c{number // RECORDS}:record" for number in range(COLLECTIONS * RECORDS))
    queries = RESOURCES - COLLECTIONS * RECORDS
    return records + tuple(f"{NAME}.c{number * COLLECTIONS // queries}:find" for number in range(queries))
