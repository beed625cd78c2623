"""Random histories of a site whose answers clients keep.

The endpoint's sketch lists every outdated copy while it lives. The copy is listed in the union, and in the partition
that the answer named. That holds for a client that loads only the difference to its own sketch. The same holds across
writes, restarts, clocks that step, and servers whose clocks differ.

Catches: a lifetime that is handed out before the sketch knows it, or that exceeds the one the sketch knows; an
unreported write; a restart after which the sketch is trusted too early; a copy of an earlier process looked up among
the present one's; a write that reaches another partition than the copy named; a difference that does not lead to the
newer sketch; an `at` or a `made` that a client would misread.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from redis.asyncio import BlockingConnectionPool, Redis
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from quaestor.cache_sketch import MemoryCacheSketch, RedisCacheSketch, wire_format
from quaestor.cache_sketch.partitions import EPOCH_DIGITS, Partitioning
from quaestor.cache_sketch.sizing import DEFAULT, HEADER_BYTES
from quaestor.ports import CacheSketch
from quaestor.read_path.entries import COPY_SLACK_MS
from quaestor.read_path.validation import strong_etag
from quaestor.store.index_memory import MemoryIndex
from quaestor.store.invalidation_steps import StepByStep
from tests.end_to_end.site import Site
from tests.hand_driven import LIFETIME_MS, START_MS, HandClock, HandRegistry, reads

PATHS = ("/a", "/b", "/c?x=1", "/d?utm_source=1")
FIELD = re.compile(r"([0-9]+);at=([0-9]+)(?:;sketch=((?:[0-9a-f]{8}){1,3}))?")
MADE = re.compile(r'made=([0-9]+), delta=10(?:, base="([0-9a-f]{32})")?')
SKEW_MS = COPY_SLACK_MS
DECLARED = ("shop.half", "pair=shop.first", "pair=shop.second")


@dataclass
class Copy:
    resource: str
    version: int
    at_ms: int
    until_ms: int
    partition: str


@dataclass
class Held:
    """A sketch that a client has."""

    version: str
    body: bytes


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
        self.held: dict[str, Held] = {}
        self.dark_until_ms = 0
        """Until then the union names everything and shows no mistake."""
        self.starts = 0
        self.sketch = self.new_sketch()
        self.forget()
        self.begin()

    def new_sketch(self) -> CacheSketch:
        self.starts += 1
        return MemoryCacheSketch(epoch=f"{self.starts:0{EPOCH_DIGITS}x}")

    def forget(self) -> None:
        """Lose what outlives a process where there is a Redis: registrations, and the index of what depends on them."""
        self.registry, self.index = HandRegistry(), MemoryIndex()
        self.registered: dict[str, set[str]] = {path: set() for path in PATHS}

    def begin(self) -> None:
        """Start a process, with nothing in its memory."""
        self.site = Site(
            self.page, clock=HandClock(), registry=self.registry, index=self.index, early_refresh=0,
            sketch_partitions=DECLARED,
        )  # fmt: skip
        self.site.engine.estimator.ttl_ms = 7_600
        self.site.engine.sketch = self.sketch  # type: ignore[assignment]
        read_path = self.site.engine.read_path
        read_path.copies._sketch = read_path.admission.announcement._sketch = self.sketch
        read_path.admission._partitioning = Partitioning(DECLARED, epoch=self.sketch.epoch)
        self.tick(0)

    async def page(self, request: Request) -> Response:
        """Return a page whose reads, and so its partition, change with the versions: alone, of a pair, of several,
        of none.
        """
        path = request.url.path + (f"?{request.url.query}" if "x=" in request.url.query else "")
        version = self.written.get(path) or self.written["/d?utm_source=1"]
        for namespace in (("shop.half",), ("shop.first",), ("shop.half", "shop.second"), ("shop.rest",))[version % 4]:
            reads(namespace=namespace)
        return JSONResponse({"version": version})

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
        group = (match[3] or "").removeprefix(self.sketch.epoch)
        assert bool(group) == (answer.json()["version"] % 4 < 2)
        assert at_ms <= self.time_ms < at_ms + 100
        self.copies.append(Copy(path, answer.json()["version"], at_ms, at_ms + 1_000 * int(match[1]), match[3] or ""))

    @rule(path=st.sampled_from(PATHS), wait_ms=st.sampled_from([0, 900, 4_000]))
    def fetch_and_write(self, path: str, wait_ms: int) -> None:
        self.fetch(path)
        self.tick(wait_ms)
        self.write(path)

    @rule(path=st.sampled_from(PATHS))
    def write(self, path: str) -> None:
        """Somebody writes: the registration dies, and the effects are worked off."""
        self.written[path] += 1
        if ids := sorted(self.registered[path]):
            self.registered[path].clear()
            self.registry.kill(*ids)
            share = StepByStep(index=self.index, sketch=self.sketch, store=self.site.engine.store)
            claimed = self.runner.run(share.claim_and_evict(ids, [], now_ms=self.time_ms))
            self.runner.run(self.index.settle([claim.dependent for claim in claimed]))

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
            self.dark_until_ms = self.time_ms + LIFETIME_MS + COPY_SLACK_MS
            self.runner.run(self.sketch.saturate(self.dark_until_ms, earlier=True))
            self.forget()
            for path in PATHS:  # what is written while nobody listens
                self.written[path] += 1
        self.begin()

    @precondition(lambda self: self.latest_ms >= self.dark_until_ms)
    @rule(by_ms=st.sampled_from([3_000, 30_000, 3_600_000]))
    def set_clocks_back(self, by_ms: int) -> None:
        """Clients that hear of it forget what they keep (docs/sketch_clients.md); what they get then is as safe as before."""
        self.dark_until_ms = self.latest_ms
        self.tick(-by_ms)
        self.latest_ms = self.time_ms
        self.copies.clear()

    forgets = True

    @invariant()
    def what_is_outdated_is_named(self) -> None:
        self.tick(SKEW_MS)  # past the micro-cache, so that the sketch is made now
        self.copies = [copy for copy in self.copies if copy.until_ms > self.latest_ms]
        outdated = [copy for copy in self.copies if copy.version != self.written[copy.resource]]
        for partition in sorted({"", *(copy.partition for copy in self.copies)}):
            bits = self.load(partition)[HEADER_BYTES:]
            for copy in outdated:
                if partition in ("", copy.partition):
                    where = wire_format.positions(wire_format.digest(copy.resource), DEFAULT)
                    assert all(bits[position >> 3] >> (position & 7) & 1 for position in where), copy

    def load(self, partition: str) -> bytes:
        """The sketch of a partition, by its difference from what the client holds if the server knows that."""
        path = f"/quaestor/sketch/{partition}".removesuffix("/")
        held = self.held.get(partition)
        query = f"?have={held.version}" if held else ""
        answer = self.runner.run(self.site.get(path + query))
        made = MADE.fullmatch(answer.headers["quaestor-sketch"])
        assert made is not None
        assert int(made[1]) == self.time_ms
        body, version = answer.content, answer.headers["etag"][1:33]
        if made[2]:
            assert held is not None
            assert made[2] == held.version
            bits = int.from_bytes(body[HEADER_BYTES:], "little") ^ int.from_bytes(held.body[HEADER_BYTES:], "little")
            body = body[:HEADER_BYTES] + bits.to_bytes(DEFAULT.size_bytes, "little")
            assert strong_etag(body)[1:-1].decode() == version
        self.held[partition] = Held(version, body)
        return body


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


def test_every_outdated_copy_is_listed_with_redis(redis_url: str, prefix: str) -> None:
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


def without_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: MemoryCacheSketch, resources: Sequence[str], *, now_ms: int) -> list[int]:
        return [0] * len(resources)

    monkeypatch.setattr(MemoryCacheSketch, "report_write", nothing)


def without_memory_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quaestor.cache_sketch.expiring.CLOCK_GRACE_MS", 10**12)


def without_partitions_in_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    report = MemoryCacheSketch.report_write

    async def to_the_union(self: MemoryCacheSketch, resources: Sequence[str], *, now_ms: int) -> list[int]:
        return await report(self, [name.partition("#")[0] for name in resources], now_ms=now_ms)

    monkeypatch.setattr(MemoryCacheSketch, "report_write", to_the_union)


def without_an_epoch_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HandedOut, "new_sketch", lambda self: MemoryCacheSketch(epoch="0" * EPOCH_DIGITS))


def write_after_fetch(history: HandedOut) -> None:
    history.fetch_and_write("/a", 900)


def clock_set_back_to_where_a_copy_lived(history: HandedOut) -> None:
    history.fetch("/a")
    history.wait(20_000)
    history.what_is_outdated_is_named()
    history.set_clocks_back(20_000)
    history.fetch_and_write("/a", 0)


def restart_between_a_copy_and_another(history: HandedOut) -> None:
    history.fetch("/a")
    history.wait(1_000)
    history.restart()
    for _ in range(4):  # one of them is in the partition that the copy is in
        history.fetch("/b")
        history.write("/b")


@pytest.mark.parametrize(
    ("switch_off", "happened"),
    [
        (without_reports, write_after_fetch),
        (without_partitions_in_writes, write_after_fetch),
        (without_memory_of_the_clock, clock_set_back_to_where_a_copy_lived),
        (without_an_epoch_of_its_own, restart_between_a_copy_and_another),
    ],
    ids=lambda kind: kind.__name__,
)
def test_with_a_protection_switched_off_a_missing_copy_is_found(
    monkeypatch: pytest.MonkeyPatch,
    switch_off: Callable[[pytest.MonkeyPatch], None],
    happened: Callable[[HandedOut], None],
) -> None:
    """The histories reach the cases of each protection; with the protection on, the same history is harmless."""
    for off in (False, True):
        if off:
            switch_off(monkeypatch)
        history = HandedOut()
        try:
            happened(history)
            with pytest.raises(AssertionError, match="Copy") if off else nullcontext():
                history.what_is_outdated_is_named()
        finally:
            history.teardown()
