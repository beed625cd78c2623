"""Load of the benchmark: closed loop, ten client machines in this process, each with many connections.

A connection asks, waits for the answer, and asks for the next. The connections of a machine share its cache
(`QuaestorTransport`). Requests go directly to a machine's transport, since `httpx.AsyncClient` around it costs more than a hit
in memory. The network is the benchmark's own (`network.py`), since httpx's costs more than all servers.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from statistics import median
from typing import Any, Final, NamedTuple

import httpx

from benchmarks.query_caching.mix import READS, Mix, Request, everything, resource
from benchmarks.query_caching.network import Network
from benchmarks.query_caching.staleness import Written
from quaestor import Level, QuaestorTransport

CLIENTS: Final = 10
METHODS: Final = {"record": "GET", "query": "GET", "update": "PUT", "insert": "POST", "delete": "DELETE"}
LAYERS: Final = ("browser", "cdn", "app", "database")
BROWSER, CDN, APP, DATABASE = range(4)
WARM_PASSES: Final = 2
"""The second is for what the doorkeeper (docs/admission.md) did not store at the first."""
_WARM_AT_ONCE = 96
_WARM_S: Final = 60.0
_LOOK_S = 0.05
_LEAST_READS: Final = 10
"""Each connection has so many reads counted, however slow the machine is."""
_reached: ContextVar[list[int] | None] = ContextVar("reached", default=None)


class Read(NamedTuple):
    """An answered read: its start, duration, resource, machine and farthest layer, and the age of the oldest write that the
    answer does not show."""

    asked_s: float
    took_s: float
    resource: int
    client: int
    layer: int
    stale_s: float


@dataclass(slots=True)
class Phase:
    """Phase that is counted: so many connections, from begun_s to ended_s.

    cores: used by each part meanwhile, in cores.
    late_ms: the median delay of due work in the clients' event loop: answers waited so long for a processor, not for a server.
    """

    connections: int
    begun_s: float
    ended_s: float = 0.0
    reads: list[Read] = field(default_factory=list)
    writes: int = 0
    failed: int = 0
    cores: Mapping[str, float] = field(default_factory=dict)
    late_ms: float = 0.0


def layer_of(headers: Mapping[str, str]) -> int:
    """The layer that answered, by the header fields of an answer of the network."""
    if headers.get("x-varnish-cache") == "hit":
        return CDN
    return APP if "Quaestor; hit" in headers.get("cache-status", "") else DATABASE


class _Watched(Network):
    """Network of one machine; notes for each request which layer answered."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        if (reached := _reached.get()) is not None:
            reached.append(layer_of(response.headers))
        return response


class Machine:
    """One client machine.

    delta_s: of its Cache Sketch; None: it keeps nothing.
    """

    def __init__(self, url: str, *, delta_s: float | None) -> None:
        self._url = url
        network = _Watched(url)
        self._transport: httpx.AsyncBaseTransport = network
        if delta_s is not None:
            # Own writes are not waited for: with them everything is revalidated for 3 s after each write of the machine.
            level = Level(delta_s=delta_s, read_your_writes=False)
            self._transport = QuaestorTransport(url, level=level, transport=network)

    async def ready(self) -> None:
        """Load the Cache Sketch, where there is one."""
        if isinstance(self._transport, QuaestorTransport):
            await self._transport.refresh()

    async def ask(self, request: Request, headers: Mapping[str, str] | None = None) -> tuple[int, int, Any]:
        """Status, the farthest layer that was asked, and what the answer shows."""
        reached: list[int] = []
        token = _reached.set(reached)
        try:
            sent = httpx.Request(METHODS[request.kind], _url(self._url + request.path), headers=headers)
            response = await self._transport.handle_async_request(sent)
            body = await response.aread()
        finally:
            _reached.reset(token)
        shown = json.loads(body) if response.status_code == 200 else None
        return response.status_code, max(reached, default=BROWSER), shown

    async def __aenter__(self) -> Machine:
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close its connections, also when asking failed."""
        await self._transport.aclose()


@cache
def _url(text: str) -> httpx.URL:
    return httpx.URL(text)


class Load:
    """Load on one set-up: machines that go on from phase to phase, with what they keep.

    used_s: processor time that each part has used so far.
    """

    def __init__(self, url: str, *, delta_s: float | None, used_s: Callable[[], Mapping[str, float]]) -> None:
        self._url, self._delta_s, self._used_s = url, delta_s, used_s
        self._machines: list[Machine] = []
        self._closing = AsyncExitStack()
        self._written = Written()

    async def __aenter__(self) -> Load:
        for _ in range(CLIENTS):
            self._machines.append(await self._closing.enter_async_context(Machine(self._url, delta_s=self._delta_s)))
        try:
            for machine in self._machines:
                await machine.ready()
        except BaseException:
            await self._closing.aclose()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._closing.aclose()

    async def phase(self, seed: str, connections: int, *, settle_s: float, seconds: float) -> Phase:
        """Run so many connections. Requests count after settle_s, for so many seconds, and at least a few reads."""
        begun_s = time.perf_counter() + settle_s
        phase = Phase(connections, begun_s)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watched(phase, seconds))
            for i in range(connections):
                tasks.create_task(self._connection(phase, i % CLIENTS, Mix(seed, i), begun_s + seconds))
        return phase

    async def _watched(self, phase: Phase, seconds: float) -> None:
        await asyncio.sleep(phase.begun_s - time.perf_counter())
        before, from_s = self._used_s(), time.perf_counter()
        late_ms = []
        while (now_s := time.perf_counter()) < from_s + seconds:
            wait_s = min(_LOOK_S, from_s + seconds - now_s)
            await asyncio.sleep(wait_s)
            late_ms.append(max(0.0, time.perf_counter() - now_s - wait_s) * 1_000)  # uvloop's timers are whole ms
        phase.late_ms = median(late_ms)
        after, phase.ended_s = self._used_s(), time.perf_counter()
        length_s = phase.ended_s - from_s
        phase.cores = {name: (after[name] - before[name]) / length_s for name in after}

    async def _connection(self, phase: Phase, client: int, mix: Mix, until_s: float) -> None:
        machine, reads = self._machines[client], 0
        while (asked_s := time.perf_counter()) < until_s or reads < _LEAST_READS:
            request = mix.next()
            counted = asked_s >= phase.begun_s
            reads += counted and request.kind in READS
            if request.kind not in READS:
                phase.writes += counted
                await self._write(machine, request, phase)
                continue
            asked_s = time.perf_counter()
            try:
                status, layer, shown = await machine.ask(request)
            except httpx.TransportError:
                status, layer, shown = 0, DATABASE, None
            answered_s = time.perf_counter()
            if shown is None or status != 200:
                phase.failed += 1
                continue
            stale_s = self._written.stale_s(request, shown, asked_s, answered_s)
            if counted:
                phase.reads.append(Read(asked_s, answered_s - asked_s, resource(request), client, layer, stale_s))
            if layer == BROWSER:
                await asyncio.sleep(0)  # other machines have processors of their own

    async def _write(self, machine: Machine, request: Request, phase: Phase) -> None:
        self._written.sent(request, time.perf_counter())
        try:
            status, _, answer = await machine.ask(request)
        except httpx.TransportError:
            status, answer = 0, None
        if status == 200 and answer is not None:
            self._written.acknowledged(request, answer, time.perf_counter())
        else:
            phase.failed += 1


async def _kept_by_cdn(machine: Machine, request: Request) -> None:
    """Ask until the CDN answers. A busy application may have refused to store the first answers."""
    until_s = time.perf_counter() + _WARM_S
    while (await machine.ask(request))[1] != CDN:
        if time.perf_counter() > until_s:
            raise RuntimeError(f"{request.path} was not kept by the CDN within {_WARM_S} s")
        await asyncio.sleep(_LOOK_S)


async def warm(url: str, further: Sequence[Request] = ()) -> float:
    """Ask for everything that the mix may ask for, so that CDN and application keep it: a system that has been running for long.

    further: what the CDN must answer at the end. Raises RuntimeError if it does not.
    Returns how long it took, in s.
    """
    begun_s = time.perf_counter()
    wanted: Sequence[Request] = [*everything(), *further]
    async with AsyncExitStack() as closing:
        machines = [await closing.enter_async_context(Machine(url, delta_s=None)) for _ in range(CLIENTS)]
        for _ in range(WARM_PASSES):
            ahead = iter(wanted)

            async def one(machine: Machine, ahead: Iterable[Request] = ahead) -> None:
                for request in ahead:
                    status, _, _ = await machine.ask(request)
                    if status != 200:
                        raise RuntimeError(f"{request.path} was answered with {status}")

            async with asyncio.TaskGroup() as tasks:
                for i in range(_WARM_AT_ONCE):
                    tasks.create_task(one(machines[i % CLIENTS]))
        for request in further:
            await _kept_by_cdn(machines[0], request)
    return time.perf_counter() - begun_s
