"""Service times of a set-up without load, for the simulator: what each layer's answer takes, and how soon the CDN knows of a
write.

Asked for is a collection that the mix does not touch, a few requests at a time. Latencies are medians, with the spread of the
middle half: single outliers of a machine that is shared say nothing of the service.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from statistics import fmean, median, quantiles
from typing import Any, Final

from benchmarks.query_caching.app import SPARE
from benchmarks.query_caching.load import APP, BROWSER, CDN, DATABASE, Machine
from benchmarks.query_caching.mix import QUERIES, Request

Latency = tuple[float, float]
"""Median, and the standard deviation that a normal distribution with the same middle half has, in ms."""
_AT_ONCE: Final = 4
_KEYS: Final = 48
_HITS: Final = 400
_PAST_CDN: Final = {"cache-control": "no-cache"}
_SPREAD_OF_MIDDLE: Final = 1.349
_WAIT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTimes:
    """Service times of one set-up, for a client; None: it has no such layer.

    memory_ms, cdn_ms, app_ms, database_ms: latency of an answer of each layer, all the way there and back.
    write_ms: until a write is acknowledged.
    purged_s: from then until the CDN asks the application again.
    memory_cpu_ms, network_cpu_ms: processor time of the clients' process for a read out of memory, and for one over the network;
        the load's own work is in it.
    """

    memory_ms: Latency | None = None
    cdn_ms: Latency | None = None
    app_ms: Latency | None = None
    database_ms: Latency
    write_ms: float
    purged_s: float = 0.0
    memory_cpu_ms: float = 0.0
    network_cpu_ms: float

    def report(self) -> dict[str, Any]:
        """Rounded, for the result."""
        return {
            name: [round(item, 3) for item in value] if isinstance(value, tuple) else round(value, 4)
            for name, value in asdict(self).items()
            if value is not None
        }


_UNWRITTEN: Final = Request("query", SPARE, 99, 99)
"""Read of which nothing is changed: what was changed the sketch names, and clients do not answer it from memory."""


def spare_reads() -> list[Request]:
    """Reads of the spare collection that have to be warm."""
    return [*_written(), _UNWRITTEN]


def _written() -> list[Request]:
    half = _KEYS // 2
    records = [Request("record", SPARE, key, key % QUERIES) for key in range(half)]
    return records + [Request("query", SPARE, half + group, half + group) for group in range(half)]


def latency(took_ms: Sequence[float]) -> Latency:
    """See Latency."""
    low, _, high = quantiles(took_ms, n=4)
    return median(took_ms), (high - low) / _SPREAD_OF_MIDDLE


async def of_uncached(url: str) -> ServiceTimes:
    """Of the set-up without caches."""
    async with Machine(url, delta_s=None) as machine:
        begun_cpu_s = time.process_time()
        database_ms = await _asked(machine, _written() * 2, lambda layer: layer == DATABASE)
        cpu_ms = (time.process_time() - begun_cpu_s) / (2 * _KEYS) * 1_000
        write_ms = [await _written_ms(machine, Request("update", SPARE, 500 + number, 0)) for number in range(_AT_ONCE)]
    return ServiceTimes(database_ms=latency(database_ms), write_ms=fmean(write_ms), network_cpu_ms=cpu_ms)


async def of_cached(url: str, *, delta_s: float | None) -> ServiceTimes:
    """Of a set-up with a CDN, that is warm.

    delta_s: of its clients' sketches; None: they keep nothing.
    """
    reads = _written()
    filled: list[tuple[float, float, float]] = []
    async with Machine(url, delta_s=None) as machine:
        begun_cpu_s = time.process_time()
        cdn_ms = await _asked(machine, (reads * _HITS)[:_HITS], lambda layer: layer == CDN, at_once=1)
        network_cpu_ms = (time.process_time() - begun_cpu_s) / _HITS * 1_000
        app_ms = await _asked(machine, reads, lambda layer: layer == APP, headers=_PAST_CDN)
        memory_ms, memory_cpu_ms = await _memory(url, delta_s) if delta_s is not None else (None, 0.0)
        for some in _several(reads):
            async with asyncio.TaskGroup() as tasks:
                filling = [tasks.create_task(_filled(machine, read)) for read in some]
            filled += [task.result() for task in filling]
    write_ms, purged_s, database_ms = zip(*filled, strict=True)
    return ServiceTimes(
        memory_ms=memory_ms, cdn_ms=latency(cdn_ms), app_ms=latency(app_ms), database_ms=latency(database_ms),
        write_ms=fmean(write_ms), purged_s=median(purged_s), memory_cpu_ms=memory_cpu_ms, network_cpu_ms=network_cpu_ms,
    )  # fmt: skip


async def _asked(
    machine: Machine,
    reads: Sequence[Request],
    expected: Callable[[int], bool],
    *,
    at_once: int = _AT_ONCE,
    headers: dict[str, str] | None = None,
) -> list[float]:
    """Latencies of the reads that the expected layer answered. Raises RuntimeError if most were answered by others."""
    took_ms: list[float] = []

    async def ask(some: Iterable[Request]) -> None:
        for request in some:
            begun_s = time.perf_counter()
            _, layer, _ = await machine.ask(request, headers)
            if expected(layer):
                took_ms.append((time.perf_counter() - begun_s) * 1_000)

    async with asyncio.TaskGroup() as tasks:
        for i in range(at_once):
            tasks.create_task(ask(reads[i::at_once]))
    if len(took_ms) < max(2, len(reads) // 2):
        raise RuntimeError(f"only {len(took_ms)} of {len(reads)} requests were answered by the layer that is measured")
    return took_ms


async def _written_ms(machine: Machine, write: Request) -> float:
    begun_s = time.perf_counter()
    status, _, _ = await machine.ask(write)
    if status != 200:
        raise RuntimeError(f"the write {write.path} was answered with {status}")
    return (time.perf_counter() - begun_s) * 1_000


async def _filled(machine: Machine, read: Request) -> tuple[float, float, float]:
    """Times of a write (ms), from the write until the CDN no longer answered (s), and of the next answer (ms)."""
    write_ms = await _written_ms(machine, Request("update", SPARE, read.key, read.group))
    acknowledged_s = time.perf_counter()
    for _ in count():
        asked_s = time.perf_counter()
        _, layer, _ = await machine.ask(read)
        if layer != CDN:
            return write_ms, asked_s - acknowledged_s, (time.perf_counter() - asked_s) * 1_000
        if asked_s - acknowledged_s > _WAIT_S:
            raise RuntimeError(f"{read.path} was not purged within {_WAIT_S} s of a write")
        await asyncio.sleep(0.002)
    raise AssertionError


async def _memory(url: str, delta_s: float) -> tuple[Latency, float]:
    """Latency and processor time of reads out of memory. Call this before the first write to the collection, because lifetimes
    are short afterwards. A client cannot use a lifetime below 2 s: the server's clock may be so far ahead of the client's
    estimate."""
    read = _UNWRITTEN
    async with Machine(url, delta_s=delta_s) as machine:
        await machine.ready()
        begun_s = time.perf_counter()
        while (await machine.ask(read))[1] != BROWSER:
            if time.perf_counter() - begun_s > _WAIT_S:
                raise RuntimeError(
                    f"{read.path} was not answered from memory within {_WAIT_S} s: named, or short-lived"
                )
            await asyncio.sleep(0.01)
        begun_cpu_s = time.process_time()
        took_ms = await _asked(machine, [read] * _HITS, lambda layer: layer == BROWSER, at_once=1)
        cpu_ms = (time.process_time() - begun_cpu_s) / _HITS * 1_000
    return latency(took_ms), cpu_ms


def _several(reads: Sequence[Request]) -> Iterable[Sequence[Request]]:
    return (reads[i : i + _AT_ONCE] for i in range(0, len(reads), _AT_ONCE))
