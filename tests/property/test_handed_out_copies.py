"""Random histories of a site whose answers clients keep: what was handed out and has been outdated since is in the sketch that
the endpoint serves, for as long as the copy lives. Across writes, restarts, clocks that step, servers whose clocks differ.

Catches: a lifetime that is handed out before the sketch was told, or is longer than it was told; a write that is not reported; a
restart after which the sketch is trusted too early; an `at` or a `made` that a client would take for something else.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from redis.asyncio import BlockingConnectionPool, Redis

from quaestor.cache_sketch import MemoryCacheSketch, RedisCacheSketch, wire_format
from quaestor.cache_sketch.sizing import DEFAULT, HEADER_BYTES
from quaestor.ports import CacheSketch
from quaestor.read_path.entries import COPY_SLACK_MS
from quaestor.store.index_memory import MemoryIndex
from quaestor.store.invalidation_script import StepByStep
from tests.end_to_end.site import Site
from tests.hand_driven import LIFETIME_MS, START_MS, HandClock, HandRegistry

PATHS = ("/a", "/b", "/c?x=1", "/d?utm_source=1")
FIELD = re.compile(r"([0-9]+);at=([0-9]+)")
MADE = re.compile(r"made=([0-9]+), delta=10")
SKEW_MS = COPY_SLACK_MS


@dataclass
class Copy:
    resource: str
    version: int
    at_ms: int
    until_ms: int


class HandedOut(RuleBasedStateMachine):
    """A site and all copies that it has ever handed out. `time_ms` is what the clock of the server shows that acts."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.time_ms = START_MS
        self.latest_ms = START_MS
        """The latest that any server's clock has shown: the time by which a client counts."""
        self.written = dict.fromkeys(PATHS, 1)
        self.copies: list[Copy] = []
        self.sketch = self.new_sketch()
        self.forget()
        self.begin()

    def new_sketch(self) -> CacheSketch:
        return MemoryCacheSketch()

    def forget(self) -> None:
        """Lose what outlives a process where there is a Redis: registrations, and the index of what depends on them."""
        self.registry, self.index = HandRegistry(), MemoryIndex()
        self.registered: dict[str, set[str]] = {path: set() for path in PATHS}

    def begin(self) -> None:
        """Start a process, with nothing in its memory."""
        self.site = Site(clock=HandClock(), registry=self.registry, index=self.index, early_refresh=0)
        self.site.engine.estimator.ttl_ms = 7_000
        self.site.engine.sketch = self.sketch  # type: ignore[assignment]
        read_path = self.site.engine.read_path
        read_path.copies._sketch = read_path.admission._sketch = self.sketch
        self.tick(0)

    def tick(self, by_ms: int) -> None:
        self.time_ms += by_ms
        self.site.engine.clock.now_ms = self.time_ms
        self.latest_ms = max(self.latest_ms, self.time_ms)

    def teardown(self) -> None:
        self.runner.run(self.site.client.aclose())
        self.runner.close()

    @rule(path=st.sampled_from(PATHS))
    def fetch(self, path: str) -> None:
        """A client fetches, and keeps what it may."""
        self.site.version = self.written[path]
        answer = self.runner.run(self.site.get(path))
        assert answer.headers["cache-control"] == "public, max-age=0, must-revalidate"
        entry = self.site.engine.store.resident("http://shop.test" + path.removesuffix("?utm_source=1"))
        assert entry is not None
        self.registered[path].update(entry.response.registrations)
        match = FIELD.fullmatch(answer.headers.get("quaestor-ttl", ""))
        if match is None:
            return
        assert "utm_source" not in path
        at_ms = int(match[2])
        assert at_ms <= self.time_ms < at_ms + 1_000
        self.copies.append(Copy(path, answer.json()["version"], at_ms, at_ms + 1_000 * int(match[1])))

    @rule(path=st.sampled_from(PATHS))
    def write(self, path: str) -> None:
        """Somebody writes: the registration dies, and the effects are worked off."""
        self.written[path] += 1
        if ids := sorted(self.registered[path]):
            self.registered[path].clear()
            self.registry.kill(*ids)
            share = StepByStep(index=self.index, sketch=self.sketch, store=self.site.engine.store)
            claimed = self.runner.run(share.claim_and_evict(ids, [], now_ms=self.time_ms))
            self.runner.run(self.index.settle([one.dependent for one in claimed]))

    @rule(by_ms=st.sampled_from([1, 400, 1_000, 3_500, 7_000, 20_000, 61_000]))
    def wait(self, by_ms: int) -> None:
        self.tick(by_ms)

    @rule(by_ms=st.integers(-SKEW_MS // 2, SKEW_MS // 2))
    def ask_another_server(self, by_ms: int) -> None:
        """One whose clock differs; no two differ by more than the grace."""
        if self.latest_ms - self.time_ms + abs(by_ms) < SKEW_MS:
            self.tick(by_ms)

    @rule()
    def restart(self) -> None:
        """The process ends, and what it handed out is still out there."""
        self.runner.run(self.site.client.aclose())
        if self.forgets:
            self.sketch = self.new_sketch()
            self.runner.run(self.sketch.saturate(self.time_ms + LIFETIME_MS + COPY_SLACK_MS))
            self.forget()
            for path in PATHS:  # what is written while nobody listens
                self.written[path] += 1
        self.begin()

    @rule(by_ms=st.sampled_from([3_000, 30_000, 3_600_000]))
    def set_clocks_back(self, by_ms: int) -> None:
        """Clients that hear of it forget what they keep (docs/sketch_clients.md); what they get then is as safe as before."""
        self.tick(-by_ms)
        self.latest_ms = self.time_ms
        self.copies.clear()

    forgets = True

    @invariant()
    def what_is_outdated_is_named(self) -> None:
        self.tick(SKEW_MS)  # past the micro-cache, so that the sketch is made now
        self.copies = [copy for copy in self.copies if copy.until_ms > self.latest_ms]
        answer = self.runner.run(self.site.get("/quaestor/sketch"))
        made = MADE.fullmatch(answer.headers["quaestor-sketch"])
        assert made is not None
        assert int(made[1]) == self.time_ms
        bits = answer.content[HEADER_BYTES:]
        for copy in self.copies:
            if copy.version != self.written[copy.resource]:
                where = wire_format.positions(wire_format.digest(copy.resource), DEFAULT)
                assert all(bits[position >> 3] >> (position & 7) & 1 for position in where), copy


def redis_history(url: str, prefix: str) -> type[HandedOut]:
    """The same with the sketch in Redis, which lives on when the process ends."""
    runs = iter(range(1_000_000))

    class InRedis(HandedOut):
        forgets = False

        def new_sketch(self) -> CacheSketch:
            self.client = Redis.from_pool(BlockingConnectionPool.from_url(url, max_connections=1))
            self.kept = RedisCacheSketch(self.client, deployment=f"{prefix}-{next(runs)}", copies_live_ms=LIFETIME_MS)
            return self.kept

        def teardown(self) -> None:
            self.runner.run(self.client.delete(*self.kept.keys))
            self.runner.run(self.client.aclose())
            super().teardown()

    return InRedis


def test_no_outdated_copy_is_missing_from_the_sketch_while_it_lives() -> None:
    run_state_machine_as_test(
        HandedOut, settings=settings(max_examples=60, stateful_step_count=30, deadline=None, print_blob=True)
    )


def test_nor_in_redis(redis_url: str, prefix: str) -> None:
    run_state_machine_as_test(
        redis_history(redis_url, prefix),
        settings=settings(
            max_examples=15,
            stateful_step_count=25,
            deadline=None,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
