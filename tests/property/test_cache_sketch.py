"""Random histories of the Cache Sketch against a model that recomputes everything, in memory and in Redis at once.

Catches: a stale copy that is not reported (a false negative); a bit that stays after its key; a counter that drifts;
a difference between the two implementations.
"""

from __future__ import annotations

import asyncio
import struct

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from redis.asyncio import BlockingConnectionPool, Redis

from quaestor.cache_sketch import RedisCacheSketch, wire_format
from quaestor.cache_sketch.expiring import ExpiringSketch
from quaestor.cache_sketch.limits import Limits
from quaestor.cache_sketch.sizing import HEADER_BYTES, Geometry

CROWDED = Geometry(slices=2, bits_per_slice=4, capacity=8, error_rate=0.3)
"""A filter so small that keys share positions all the time."""
RESOURCES = [f"/{i}" for i in range(12)]
START_MS = 1_700_000_000_000

resources = st.sampled_from(RESOURCES)


class Model:
    """The filter's content by definition: each copy ever handed out, with its expiry."""

    def __init__(self) -> None:
        self.copies: dict[str, list[int]] = {}
        self.stale_until_ms: dict[str, int] = {}
        self.saturated_until_ms = 0

    def write(self, resource: str, now_ms: int) -> int:
        alive_until_ms = max((at for at in self.copies.get(resource, []) if at > now_ms), default=0)
        if alive_until_ms:
            self.stale_until_ms[resource] = max(alive_until_ms, self.stale_until_ms.get(resource, 0))
        return max(0, max(alive_until_ms, self.saturated_until_ms) - now_ms)

    def stale(self, now_ms: int) -> list[str]:
        return [resource for resource, until_ms in self.stale_until_ms.items() if until_ms > now_ms]

    def body(self, now_ms: int) -> bytes:
        if now_ms < self.saturated_until_ms:
            return wire_format.saturated(CROWDED)
        bits = bytearray(CROWDED.size_bytes)
        for resource in self.stale(now_ms):
            for position in wire_format.positions(wire_format.digest(resource), CROWDED):
                bits[position // 8] |= 1 << position % 8
        return wire_format.encode(CROWDED, keys=len(self.stale(now_ms)), bits=bits)


class SketchHistory(RuleBasedStateMachine):
    """Clock, reads, writes and losses in any order; after each step the snapshot is exactly the model's."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = START_MS
        self.model = Model()
        self.sketch = ExpiringSketch(CROWDED, Limits(sweep=2, snapshot_sweep=2))

    @rule(resource=resources, ttl_ms=st.integers(-5, 50))
    def read(self, resource: str, ttl_ms: int) -> None:
        self.model.copies.setdefault(resource, []).append(self.now_ms + ttl_ms)
        self.report_read(resource, self.now_ms + ttl_ms)

    @rule(written=st.lists(resources, max_size=6))
    def write(self, written: list[str]) -> None:
        expected = [self.model.write(resource, self.now_ms) for resource in written]
        assert self.report_write(written) == expected

    @rule(resource=resources, ttl_ms=st.integers(1, 50))
    def read_and_write(self, resource: str, ttl_ms: int) -> None:
        self.read(resource, ttl_ms)
        self.write([resource])

    @rule(for_ms=st.integers(0, 20))
    def lose(self, for_ms: int) -> None:
        until_ms = self.now_ms + for_ms
        self.model.saturated_until_ms = max(self.model.saturated_until_ms, until_ms)
        self.saturate(until_ms)

    @rule(by_ms=st.integers(1, 40))
    def wait(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @invariant()
    def the_snapshot_is_the_model_s(self) -> None:
        assert self.snapshot() == self.model.body(self.now_ms)

    def report_read(self, resource: str, expires_at_ms: int) -> None:
        self.sketch.report_read(wire_format.digest(resource), expires_at_ms=expires_at_ms, now_ms=self.now_ms)

    def report_write(self, written: list[str]) -> list[int]:
        return self.sketch.report_write([wire_format.digest(resource) for resource in written], now_ms=self.now_ms)

    def saturate(self, until_ms: int) -> None:
        self.sketch.saturate(until_ms)

    def snapshot(self) -> bytes:
        while self.sketch.sweep(self.now_ms):
            pass
        return self.sketch.snapshot(self.now_ms)


class SmallSketchHistory(SketchHistory):
    """A sketch with room for almost nothing: it holds every required entry, and may hold more."""

    def __init__(self) -> None:
        super().__init__()
        self.sketch = ExpiringSketch(CROWDED, Limits(max_reads=2, max_stale=2, sweep=2, snapshot_sweep=2))

    @rule(written=st.lists(resources, max_size=6))
    def write(self, written: list[str]) -> None:
        expected = [self.model.write(resource, self.now_ms) for resource in written]
        assert all(left >= least for left, least in zip(self.report_write(written), expected, strict=True))

    @invariant()
    def the_snapshot_is_the_model_s(self) -> None:
        got, least = self.snapshot()[HEADER_BYTES:], self.model.body(self.now_ms)[HEADER_BYTES:]
        assert all(byte & must == must for byte, must in zip(got, least, strict=True))
        if self.now_ms > START_MS and not any(
            at > self.now_ms for copies in self.model.copies.values() for at in copies
        ):
            assert got == least, "nothing is alive, so nothing may be reported"


def redis_history(url: str, prefix: str) -> type[SketchHistory]:
    """The same machine on a real Redis, its counters recounted at every step."""
    runs = iter(range(1_000_000))

    class RedisSketchHistory(SketchHistory):
        def __init__(self) -> None:
            super().__init__()
            self.runner = asyncio.Runner()
            self.client = Redis.from_pool(BlockingConnectionPool.from_url(url, max_connections=1))
            self.deployment = f"{prefix}-{next(runs)}"
            self.redis = RedisCacheSketch(
                self.client, deployment=self.deployment, geometry=CROWDED, limits=Limits(sweep=2, snapshot_sweep=2)
            )

        def teardown(self) -> None:
            self.runner.run(self.client.delete(*self.redis.keys))
            self.runner.run(self.client.aclose())
            self.runner.close()

        def report_read(self, resource: str, expires_at_ms: int) -> None:
            self.runner.run(self.redis.report_read(resource, expires_at_ms=expires_at_ms, now_ms=self.now_ms))

        def report_write(self, written: list[str]) -> list[int]:
            return self.runner.run(self.redis.report_write(written, now_ms=self.now_ms))

        def saturate(self, until_ms: int) -> None:
            self.runner.run(self.redis.saturate(until_ms))

        def snapshot(self) -> bytes:
            return self.runner.run(self.redis.snapshot(now_ms=self.now_ms))

        @invariant()
        def counters_are_the_number_of_keys_at_each_position(self) -> None:
            expected = [0] * CROWDED.size_bits
            for resource in self.model.stale(self.now_ms):
                for position in wire_format.positions(wire_format.digest(resource), CROWDED):
                    expected[position] += 1
            self.snapshot()  # sweeps what is due
            raw = self.runner.run(self.client.get(self.redis.keys[2]))
            assert list(struct.unpack(f">{CROWDED.size_bits}I", raw)) == expected

    return RedisSketchHistory


def test_memory_never_forgets_a_stale_copy_nor_keeps_a_dead_one() -> None:
    run_state_machine_as_test(
        SketchHistory, settings=settings(max_examples=200, stateful_step_count=40, deadline=None, print_blob=True)
    )


def test_beyond_its_limits_it_still_never_forgets_a_stale_copy() -> None:
    run_state_machine_as_test(
        SmallSketchHistory, settings=settings(max_examples=200, stateful_step_count=40, deadline=None, print_blob=True)
    )


def test_redis_never_forgets_a_stale_copy_nor_keeps_a_dead_one(redis_url: str, prefix: str) -> None:
    run_state_machine_as_test(
        redis_history(redis_url, prefix),
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
