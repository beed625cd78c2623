"""Real clients over loopback, through a cache that loses purges and restarts: the same checker on what they have read."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import httpx
import pytest

from quaestor import Level, QuaestorSyncTransport, QuaestorTransport
from tests.sketch_clients.careless_cache import CarelessCache
from tests.sketch_clients.history import going_back, missing_causes, missing_own_writes, staler_than
from tests.sketch_clients.http_server import Shop, serving
from tests.sketch_clients.simulation import Read

RESOURCES = 5
DELTA_S = 8
LEVELS = {
    "delta": (Level(delta_s=DELTA_S, read_your_writes=False, monotonic_reads=False), staler_than(DELTA_S * 1000)),
    "read_your_writes": (Level(delta_s=300, monotonic_reads=False), missing_own_writes),
    "monotonic_reads": (Level(delta_s=300, read_your_writes=False), going_back),
    "causal": (Level(delta_s=300, causal=True), missing_causes),
    "strong": (Level(strong=True), staler_than(0)),
}
WRITES = 0.04


@dataclass
class Recorded:
    """The operations of clients, and the application: see `tests.sketch_clients.history.History`."""

    written: dict[int, list[float]] = field(default_factory=lambda: {n: [0.0] for n in range(RESOURCES)})
    reads: list[Read] = field(default_factory=list)
    own: list[tuple[int, int, float, int]] = field(default_factory=list)

    def read(self, client: int, resource: int, begun_ms: float, answer: httpx.Response) -> None:
        version, source = int(answer.text.split()[0]), str(answer.extensions["quaestor"])
        self.reads.append(Read(client, resource, begun_ms, now_ms(), version, source))


def now_ms() -> float:
    return time.time() * 1000


class Session:
    """The operations of one client, drawn as they are needed."""

    def __init__(self, number: int, seed: int, goes_on: Callable[[int], bool]) -> None:
        self.number, self._chance, self._goes_on, self._done = number, random.Random(f"{seed} {number}"), goes_on, 0

    def draw(self) -> tuple[str, int] | None:
        self._done += 1
        if not self._goes_on(self._done):
            return None
        return "PUT" if self._chance.random() < WRITES else "GET", self._chance.randrange(RESOURCES)


def in_a_thread(url: str, level: Level, session: Session, history: Recorded) -> None:
    with httpx.Client(transport=QuaestorSyncTransport(url, level=level), base_url=url, timeout=60) as client:
        while (drawn := session.draw()) is not None:
            method, resource = drawn
            begun_ms = now_ms()
            answer = client.request(method, f"/r{resource}")
            if method == "GET":
                history.read(session.number, resource, begun_ms, answer)
            else:
                history.own.append((session.number, resource, now_ms(), int(answer.headers["version"])))


async def in_a_loop(url: str, level: Level, session: Session, history: Recorded) -> None:
    async with httpx.AsyncClient(
        transport=QuaestorTransport(url, level=level), base_url=url, timeout=60
    ) as client:  # fmt: skip
        while (drawn := session.draw()) is not None:
            method, resource = drawn
            begun_ms = now_ms()
            answer = await client.request(method, f"/r{resource}")
            if method == "GET":
                history.read(session.number, resource, begun_ms, answer)
            else:
                history.own.append((session.number, resource, now_ms(), int(answer.headers["version"])))


def recorded(
    level: Level, *, seed: int, hostile: bool, goes_on: Callable[[int], bool]
) -> tuple[Recorded, CarelessCache]:
    """A history of two synchronous and two asynchronous clients."""
    history, shop = Recorded(), Shop()
    with serving(shop) as origin:
        cache = CarelessCache(origin, seed=seed, hostile=hostile)
        chance = random.Random(seed)

        def written(name: str) -> None:
            history.written[int(name[2:])].append(now_ms())
            if chance.random() < 0.1:
                cache.restart()
            cache.purge(name)

        shop.written = written
        sessions = [Session(number, seed, goes_on) for number in range(4)]
        with serving(cache) as url, ThreadPoolExecutor(3) as threads:

            async def both() -> None:
                await asyncio.gather(*(in_a_loop(url, level, session, history) for session in sessions[2:]))

            running = [threads.submit(in_a_thread, url, level, session, history) for session in sessions[:2]]
            running.append(threads.submit(asyncio.run, both()))
            for task in running:
                task.result()
    return history, cache


@pytest.mark.parametrize("hostile", [False, True], ids=["careless", "hostile"])
@pytest.mark.parametrize("name", LEVELS)
def test_a_level_keeps_its_promise(name: str, hostile: bool) -> None:
    """Over sockets, by both clocks of this machine: 400 operations for each level and cache."""
    level, check = LEVELS[name]
    history, _ = recorded(level, seed=7, hostile=hostile, goes_on=lambda done: done <= 100)
    assert len(history.reads) > 300
    assert list(check(history)) == []


@pytest.mark.slow
@pytest.mark.parametrize("hostile", [False, True], ids=["careless", "hostile"])
@pytest.mark.parametrize("name", LEVELS)
def test_a_level_keeps_its_promise_for_longer(name: str, hostile: bool) -> None:
    """As many operations as there are in 40 s: several times Δ."""
    level, check = LEVELS[name]
    end_ms = now_ms() + 40_000
    history, cache = recorded(level, seed=8, hostile=hostile, goes_on=lambda done: now_ms() < end_ms)
    assert list(check(history)) == []
    if name == "delta":
        assert cache.hits
        assert sum(read.source == "memory" for read in history.reads) > len(history.reads) / 20
