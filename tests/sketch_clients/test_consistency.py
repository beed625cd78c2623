"""Each level keeps its promise on recorded histories, and without its protection the same checker finds that it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from quaestor.client import exchange, server_time, sketches
from quaestor.client.levels import Level
from quaestor.client.server_time import Moment, ServerTime
from quaestor.client.sketches import Sketches
from tests.sketch_clients.history import going_back, missing_causes, missing_own_writes, staler_than
from tests.sketch_clients.simulation import Read, World, run

Check = Callable[[World], Iterator[Read]]
DELTA_S = 20
DELTA = Level(delta_s=DELTA_S, read_your_writes=False, monotonic_reads=False)
LEVELS: dict[str, tuple[Level, Check]] = {
    "delta": (DELTA, staler_than(DELTA_S * 1000)),
    "read_your_writes": (Level(delta_s=300, monotonic_reads=False), missing_own_writes),
    "monotonic_reads": (Level(delta_s=300, read_your_writes=False), going_back),
    "causal": (Level(delta_s=300, causal=True), missing_causes),
    "strong": (Level(strong=True), staler_than(0)),
}


def violations(level: Level, check: Check, *, seeds: range, operations: int, hostile: bool = False) -> int:
    found = 0
    for seed in seeds:
        world = World(seed, hostile=hostile)
        run(world, level, clients=4, operations=operations)
        assert len(world.reads) > operations / 2
        found += len(list(check(world)))
    return found


@pytest.mark.parametrize("hostile", [False, True], ids=["careless", "hostile"])
@pytest.mark.parametrize("name", LEVELS)
def test_a_level_keeps_its_promise(name: str, hostile: bool) -> None:
    """Clients with wrong clocks, purges late or lost, sketches lost, replayed, without their query, fields dropped."""
    assert violations(*LEVELS[name], seeds=range(3), operations=700, hostile=hostile) == 0


@pytest.mark.slow
@pytest.mark.parametrize("hostile", [False, True], ids=["careless", "hostile"])
@pytest.mark.parametrize("name", LEVELS)
def test_a_million_reads_keep_their_promise(name: str, hostile: bool) -> None:
    assert violations(*LEVELS[name], seeds=range(100, 160), operations=2_000, hostile=hostile) == 0


def test_copies_are_used() -> None:
    """Promises are easily kept by whoever asks the server each time."""
    world = World(1)
    run(world, DELTA, clients=4, operations=1500)
    sources = [one.source for one in world.reads]
    assert sources.count("memory") > len(sources) / 10


WEAKER = {
    "read_your_writes": Level(delta_s=300, read_your_writes=False, monotonic_reads=False),
    "monotonic_reads": Level(delta_s=300, read_your_writes=False, monotonic_reads=False),
    "causal": Level(delta_s=300),
    "strong": DELTA,
}


@pytest.mark.parametrize("name", WEAKER)
def test_without_the_level_its_promise_is_broken(name: str) -> None:
    """The checker can find what it is there to find."""
    assert violations(WEAKER[name], LEVELS[name][1], seeds=range(6), operations=700)


def _no_filter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sketches, "vouches", lambda self, partition, resource, at_ms: True)


def _trusted_transport(patch: pytest.MonkeyPatch) -> None:
    """A sketch counts from when it was received, whatever it says."""
    answered = Sketches.answered

    def trusting(self, request, status, headers, body, now, *, delta_ms, written_ms):  # type: ignore[no-untyped-def]
        relied = answered(self, request, status, headers, body, now, delta_ms=1e15, written_ms=0)
        if relied:
            held = self._held[request.partition]
            held.made_ms = int(self.time.latest_ms(now))
        return relied

    patch.setattr(Sketches, "answered", trusting)


def _one_clock(patch: pytest.MonkeyPatch) -> None:
    """Time that went by while the machine slept does not count."""
    patch.setattr(
        ServerTime, "latest_ms",
        lambda self, now: self._time_ms + now.monotonic_ms - self._at.monotonic_ms if self._time_ms else 0.0,
    )  # fmt: skip


def _the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    """Time that somebody took back from the wall clock does not count."""

    def latest_ms(self: ServerTime, now: Moment) -> float:
        return self._time_ms + now.wall_ms - self._at.wall_ms if self._time_ms else 0.0

    patch.setattr(ServerTime, "latest_ms", latest_ms)


OFF = {"filter": _no_filter, "age": _trusted_transport, "monotonic only": _one_clock, "wall only": _the_wall_clock}


@pytest.mark.parametrize("name", OFF)
def test_without_a_protection_delta_is_broken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The filter, the age of the sketch by the server's clock, each of the two clocks."""
    OFF[name](monkeypatch)
    assert violations(*LEVELS["delta"], seeds=range(6), operations=700, hostile=name == "age")


def test_the_margins_are_what_they_were_tested_with() -> None:
    assert (exchange.EARLY_MS, sketches.SKEW_MS, sketches.SHOWN_MS, server_time.DRIFT) == (1000, 1000, 1000, 0.001)
