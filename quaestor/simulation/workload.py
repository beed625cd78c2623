"""Workloads: the reads of results by clients, and the changes of results, over time. Made by random numbers, or taken from a
recorded trace or from counts in windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from quaestor.errors import ConfigurationError
from quaestor.ttl.trace_format import Changed, Filled, Served, Trace

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Workload of one run; times in seconds from its beginning, ascending.

    name: name of the workload, for people.
    results: number of different results.
    clients: number of browsers.
    read_s, read_of, read_by: time, result and client of each read.
    write_s, write_of: time and result of each change.
    rates_hz: rate of the writes to each result's members, as the app receives it.
    kinds: kind of each result, by which its estimator's parameters are chosen.
    """

    name: str
    results: int
    clients: int
    read_s: Array
    read_of: Array
    read_by: Array
    write_s: Array
    write_of: Array
    rates_hz: Array
    kinds: tuple[str, ...]

    @property
    def length_s(self) -> float:
        """Time until the last event."""
        return float(max(self.read_s[-1:].sum(), self.write_s[-1:].sum()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Mix of a synthetic workload in an open loop: requests do not wait for answers. Raises ConfigurationError.

    requests: number of reads and writes together.
    rate_hz: requests a second.
    reads: share of reads (0..1): 0.95 is YCSB's B, 0.5 its A.
    results, clients: number of results and of clients.
    skew: exponent of the Zipf distribution over results, of reads and of writes; 0: uniform.
    writes: "poisson"; "bursts", five at a time; "cycle", ten times as many in the first half of each period as in the second.
    period_s: length of the cycle.
    known: share of the writes that go to members (0..1). The other writes enter the result, and the app does not know their rate.
    """

    name: str = "zipf"
    requests: int = 200_000
    rate_hz: float = 1_000.0
    reads: float = 0.99
    results: int = 10_000
    clients: int = 200
    skew: float = 0.99
    writes: str = "poisson"
    period_s: float = 120.0
    known: float = 0.8

    def __post_init__(self) -> None:
        if not 0 < self.reads < 1 or not 0 <= self.known <= 1:
            raise ConfigurationError(f"reads ({self.reads}) and known ({self.known}) must be shares between 0 and 1")
        if min(self.requests, self.results, self.clients) < 1 or self.rate_hz <= 0 or self.period_s <= 0:
            raise ConfigurationError("requests, results, clients, rate_hz and period_s must be positive")
        if self.writes not in ("poisson", "bursts", "cycle"):
            raise ConfigurationError(f"writes {self.writes!r} is none of poisson, bursts, cycle")


def synthetic(mix: Mix, *, seed: int) -> Workload:
    """Workload of this mix; the same for the same seed."""
    dice = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, mix.results + 1) ** mix.skew
    cumulative = np.cumsum(weights / weights.sum())
    reads = max(1, round(mix.requests * mix.reads))
    writes = max(1, mix.requests - reads)
    length_s = mix.requests / mix.rate_hz
    write_of = np.searchsorted(cumulative, dice.random(writes)).astype(np.int32)
    write_s = dice.random(writes) * length_s
    if mix.writes == "bursts":
        lead = np.arange(writes) // 5 * 5
        write_of, write_s = write_of[lead], write_s[lead] + dice.random(writes) * 1.0
    elif mix.writes == "cycle":
        busy = dice.random(writes) < 10 / 11
        half_s = mix.period_s / 2
        write_s = write_s // mix.period_s * mix.period_s + write_s % half_s + np.where(busy, 0.0, half_s)
    order = np.argsort(write_s, kind="stable")
    rates_hz = np.bincount(write_of, minlength=mix.results) / length_s * mix.known
    return Workload(
        name=mix.name,
        results=mix.results,
        clients=mix.clients,
        read_s=np.sort(dice.random(reads)) * length_s,
        read_of=np.minimum(np.searchsorted(cumulative, dice.random(reads)), mix.results - 1).astype(np.int32),
        read_by=dice.integers(0, mix.clients, reads).astype(np.int32),
        write_s=write_s[order],
        write_of=np.minimum(write_of[order], mix.results - 1).astype(np.int32),
        rates_hz=rates_hz,
        kinds=("synthetic",) * mix.results,
    )


def recorded(trace: Trace, *, clients: int, seed: int) -> Workload:
    """Workload of a recorded trace. Requests counted within a second are spread over it, and clients are drawn, because the trace
    knows none. Raises ConfigurationError for a trace in which nothing was read."""
    dice = np.random.default_rng(seed)
    numbers: dict[str, int] = {}
    of_query: dict[str, set[int]] = {}
    kinds: list[str] = []
    rates_hz: list[float] = []
    reads: list[tuple[float, int]] = []
    writes: list[tuple[float, int]] = []
    for record in trace.records:
        at_s = record.at_ms / 1_000
        if isinstance(record, Filled):
            number = numbers.setdefault(record.result, len(numbers))
            if number == len(kinds):
                kinds.append(record.kind)
                rates_hz.append(record.rate_hz)
            for query in record.queries:
                of_query.setdefault(query, set()).add(number)
            reads.append((at_s, number))
        elif isinstance(record, Served):
            known = numbers.get(record.result)
            if known is not None:
                reads.extend((at_s - share, known) for share in dice.random(record.times))
        elif isinstance(record, Changed):
            writes.extend((at_s, number) for number in of_query.get(record.query, ()))
    if not reads:
        raise ConfigurationError("nothing was read in this trace: record for longer, or a larger share")
    reads.sort()
    writes.sort()
    read_s = np.array([at_s for at_s, _ in reads])
    return Workload(
        name="recorded",
        results=len(numbers),
        clients=clients,
        read_s=np.maximum(read_s, 0.0),
        read_of=np.array([number for _, number in reads], dtype=np.int32),
        read_by=dice.integers(0, clients, len(reads)).astype(np.int32),
        write_s=np.array([at_s for at_s, _ in writes]),
        write_of=np.array([number for _, number in writes], dtype=np.int32),
        rates_hz=np.array(rates_hz),
        kinds=tuple(kinds),
    )


def counted(
    kind: str, results: Array, from_s: Array, length_s: Array, reads: Array, changes: Array, *, clients: int
) -> Workload:
    """Workload of one kind from counts in windows. Counts are spread over their window, and clients are drawn.

    results: name of each window's result.
    from_s, length_s: beginning and length of each window.
    reads, changes: counts of each window.
    """
    dice = np.random.default_rng(0)
    names, of = np.unique(results, return_inverse=True)
    begin_s = from_s - from_s.min()

    def spread(counts: Array) -> tuple[Array, Array]:
        times_s = np.repeat(begin_s, counts) + dice.random(int(np.sum(counts))) * np.repeat(length_s, counts)
        order = np.argsort(times_s, kind="stable")
        return times_s[order], np.repeat(of, counts)[order].astype(np.int32)

    (read_s, read_of), (write_s, write_of) = spread(reads), spread(changes)
    return Workload(
        name=kind,
        results=len(names),
        clients=clients,
        read_s=read_s,
        read_of=read_of,
        read_by=dice.integers(0, clients, len(read_s)).astype(np.int32),
        write_s=write_s,
        write_of=write_of,
        rates_hz=np.zeros(len(names)),
        kinds=(kind,) * len(names),
    )
