"""Each level keeps its promise on recorded histories, and without its protection the same checker finds that it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import httpx
import pytest

from quaestor.client import exchange, server_time, sketches
from quaestor.client.copies import Copies
from quaestor.client.exchange import Exchanges
from quaestor.client.levels import Level
from quaestor.client.server_time import ServerTime
from quaestor.client.sketches import Sketches
from quaestor.client.steps import Ask
from quaestor.middleware.headers import AT_STEP_MS
from tests.sketch_clients.history import History, going_back, missing_causes, missing_own_writes, staler_than
from tests.sketch_clients.simulation import NODES, Client, Crashing, Message, Read, World, run

Check = Callable[[History], Iterator[Read]]
DELTA_S = 20
DELTA = Level(delta_s=DELTA_S, read_your_writes=False, monotonic_reads=False)
LEVELS: dict[str, tuple[Level, Check]] = {
    "delta": (DELTA, staler_than(DELTA_S * 1000)),
    "read_your_writes": (Level(delta_s=300, monotonic_reads=False), missing_own_writes),
    "monotonic_reads": (Level(delta_s=300, read_your_writes=False), going_back),
    "causal": (Level(delta_s=300, causal=True), missing_causes),
    "strong": (Level(strong=True), staler_than(0)),
}


@dataclass
class Cramped(World):
    """Clients hold four copies each, of six resources."""

    memory_bytes: int = 4_500


@dataclass
class Hoarding(Cramped):
    """The cache before the server keeps answers for longer than their lifetime for clients,
    and than the sketch names them.
    """

    resources: int = 40
    cdn_ms: int = 100_000_000


def judged(
    level: Level, check: Check, *, seeds: range, operations: int, hostile: bool = False, kind: type[World] = World
) -> tuple[int, int]:
    """Reads of so many histories, and those of them that break the promise."""
    reads = violations = 0
    for seed in seeds:
        world = kind(seed, hostile=hostile)
        run(world, level, clients=4, operations=operations)
        reads += len(world.reads)
        violations += len(list(check(world)))
    return reads, violations


@pytest.mark.parametrize("hostile", [False, True], ids=["careless", "hostile"])
@pytest.mark.parametrize("name", LEVELS)
def test_a_level_keeps_its_promise(name: str, hostile: bool) -> None:
    """Clients with wrong clocks, caches that restart, purges late or lost, sketches lost, replayed, without their query, fields
    dropped. 24,000 reads in all."""
    reads, violations = judged(*LEVELS[name], seeds=range(4), operations=700, hostile=hostile)
    assert reads > 2_400
    assert violations == 0


@pytest.mark.parametrize("name", LEVELS)
def test_a_level_keeps_its_promise_when_the_server_is_killed(name: str) -> None:
    """The server has no Redis: the next process does not know the copies handed out, and begins another epoch."""
    reads, violations = judged(*LEVELS[name], seeds=range(6), operations=700, kind=Crashing)
    assert reads > 3_600
    assert violations == 0


@pytest.mark.parametrize("kind", [Cramped, Hoarding])
@pytest.mark.parametrize("name", LEVELS)
def test_a_level_keeps_its_promise_in_little_memory(name: str, kind: type[World]) -> None:
    """Of what the sketch names there may be no copy to ask about."""
    reads, violations = judged(*LEVELS[name], seeds=range(4), operations=700, kind=kind)
    assert reads > 2_400
    assert violations == 0


@pytest.mark.parametrize("kind", [World, Cramped])
def test_a_cache_that_receives_writes_may_check_copies(kind: type[World]) -> None:
    """The cache overlooks `no-cache` where there is a condition.

    A write that it receives late is seen exactly that much later.
    """
    for seed in range(6):
        world = kind(seed, lossy=0.0, notified=True)
        run(world, DELTA, clients=4, operations=700)
        assert not list(staler_than(DELTA_S * 1000 + world.latest_purge_ms)(world))
        world = kind(seed, lossy=0.0, notified=True)
        run(world, replace(DELTA, monotonic_reads=True), clients=4, operations=700)
        assert not list(going_back(world))


def test_a_server_that_confirms_a_copy_that_no_client_has_is_asked_again() -> None:
    """The server takes any condition for met. The client's own condition is not visible to the caller."""
    confirmed = []

    class Confirming(Cramped):
        def answer(self, name: str, requested: httpx.Headers) -> Message:
            if requested.get("if-none-match") != '"-"':
                return super().answer(name, requested)
            confirmed.append(name)
            return Message(304, httpx.Headers(), b"")

    reads, violations = judged(*LEVELS["delta"], seeds=range(4), operations=700, kind=Confirming)
    assert confirmed
    assert reads > 2_000
    assert violations == 0


def test_a_resource_that_the_sketch_names_is_requested_once_for_each_sketch() -> None:
    """One request suffices also if the cache answers with a copy that left the server long before the sketch was made."""
    world = World(1, resources=1, lossy=0.0, lost_refreshes=0.0, notified=True)
    (client,) = run(world, DELTA, clients=1, operations=50)
    loaded = client.exchanges.sketches

    def done(operation: Iterator[None]) -> None:
        for _ in operation:
            world.pass_time(5)

    world.write(0)
    world.pass_time(100_000)  # of its copies all are dead but what the cache keeps
    for node in range(NODES):
        world.cdn[f"{node} /r0"] = world.origin("/r0")
    world.write(0)
    world.purges.clear()
    requests = [0]
    for _ in range(200):
        made_ms = loaded.made_ms("")
        done(client.read(0))
        if world.reads[-1].source != "memory":
            requests[-1] += 1
        if loaded.made_ms("") != made_ms:
            requests.append(0)
        world.pass_time(500)
    assert len(requests) > 8
    assert set(requests[2:]) == {1}


def test_copies_are_used_after_a_crash() -> None:
    """Copies of the new process are used long before the last copy of the old one is dead."""
    world = Crashing(1, lost_refreshes=0.0)
    clients = run(world, DELTA, clients=1, operations=50)
    world.restart()

    def done(operation: Iterator[None]) -> str:
        for _ in operation:
            world.pass_time(5)
        world.pass_time(6_000)
        return world.reads[-1].source

    sources = [done(step) for _ in range(20) for step in (clients[0].read(1), clients[0].load(world.partition(1)))]
    assert set(sources[8::2]) == {"memory"}


@pytest.mark.slow
@pytest.mark.parametrize("hostile", [False, True], ids=["careless", "hostile"])
@pytest.mark.parametrize("name", LEVELS)
def test_a_million_reads_keep_their_promise(name: str, hostile: bool) -> None:
    """A tenth of them for each level and transport."""
    reads, violations = judged(*LEVELS[name], seeds=range(100, 160), operations=2_000, hostile=hostile)
    assert reads > 100_000
    assert violations == 0


def test_copies_are_used_while_promises_hold() -> None:
    """A client that always asks the server keeps promises easily; more than a tenth of these reads come from memory."""
    world = World(1)
    run(world, DELTA, clients=4, operations=1500)
    sources = [read.source for read in world.reads]
    assert sources.count("memory") > len(sources) / 10


WEAKER = {
    "read_your_writes": Level(delta_s=300, read_your_writes=False, monotonic_reads=False),
    "monotonic_reads": Level(delta_s=300, read_your_writes=False, monotonic_reads=False),
    "causal": Level(delta_s=300),
    "strong": DELTA,
}


def broken(level: Level, check: Check, *, hostile: bool = False, kind: type[World] = World) -> bool:
    """Whether a history is found that breaks a promise. The seeds are tried one after the other."""
    return any(
        judged(level, check, seeds=range(n, n + 1), operations=700, hostile=hostile, kind=kind)[1] for n in range(20)
    )


@pytest.mark.parametrize("name", WEAKER)
def test_without_the_level_its_promise_is_broken(name: str) -> None:
    """The checker can find what it is there to find."""
    assert broken(WEAKER[name], LEVELS[name][1])


def _no_filter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Sketches, "vouches", lambda self, partition, name, at_ms, after_ms: self.made_ms(partition) >= after_ms
    )


def _trusted_transport(patch: pytest.MonkeyPatch) -> None:
    """Count a sketch's age from its arrival, without its own time."""
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
    patch.setattr(ServerTime, "elapsed_ms", lambda self, now: now.monotonic_ms)


def _the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    """Take elapsed time from the wall clock, so that time set back does not count."""
    patch.setattr(ServerTime, "elapsed_ms", lambda self, now: now.wall_ms)


def _trusted_caches(patch: pytest.MonkeyPatch) -> None:
    """Accept every answer of the network, of any age."""
    begin = Exchanges.begin

    def trusting(self, target, requested, level, now):  # type: ignore[no-untyped-def]
        step = begin(self, target, requested, level, now)
        return replace(step, after_ms=0.0) if isinstance(step, Ask) and not step.past_caches else step

    patch.setattr(Exchanges, "begin", trusting)


def _no_memory_of_writes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Exchanges, "wrote", lambda self, now: None)


def _no_memory_of_versions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Copies, "older", lambda self, key, at_ms, etag: False)


def _no_memory_of_reads(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Exchanges, "_read", lambda self, time_ms: None)


OFF = {
    "filter": ("delta", _no_filter, False),
    "age": ("delta", _trusted_transport, True),
    "monotonic clock only": ("delta", _one_clock, False),
    "wall clock only": ("delta", _the_wall_clock, False),
    "distrust of caches": ("delta", _trusted_caches, False),
    "own writes": ("read_your_writes", _no_memory_of_writes, False),
    "newest versions": ("monotonic_reads", _no_memory_of_versions, False),
    "newest answer": ("causal", _no_memory_of_reads, False),
}

HOARDING = {"distrust of caches"}
"""Protections that matter where a cache on the way keeps answers beyond their lifetime."""


@pytest.mark.parametrize("name", OFF)
def test_without_a_protection_a_promise_is_broken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each protection is switched off alone, and the same checker finds it."""
    level, switch_off, hostile = OFF[name]
    switch_off(monkeypatch)
    assert broken(*LEVELS[level], hostile=hostile, kind=Hoarding if name in HOARDING else World)


def test_without_an_epoch_of_its_own_a_process_vouches_for_what_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Crashing, "new_epoch", lambda self: "0" * 16)
    assert broken(*LEVELS["delta"], kind=Crashing)


def test_the_margins_are_what_they_were_tested_with() -> None:
    assert (AT_STEP_MS, exchange.EARLY_MS, exchange.READ_MS) == (100, 100, 1000)
    assert (sketches.SKEW_MS, sketches.SHOWN_MS, server_time.DRIFT) == (1000, 1000, 0.001)


class Early(World):
    """Answers say that they left almost a second before they did: from a server whose clock is behind."""

    def early_ms(self) -> int:
        return 999


@pytest.mark.parametrize(("read_ms", "missing"), [(1000, 0), (0, 1)], ids=["with", "without"])
def test_the_second_that_at_may_be_early(read_ms: int, missing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two writes between a sketch and an answer that shows the second: reading the first one's page from memory would miss it."""
    monkeypatch.setattr(exchange, "READ_MS", read_ms)
    world = Early(1, lossy=0.0, lost_refreshes=0.0)
    client = Client(world, 0, Level(delta_s=300, causal=True))

    def done(operation: Iterator[None]) -> None:
        for _ in operation:
            world.pass_time(20)
        world.pass_time(100)

    for operation in (client.load(""), client.read(0)):
        done(operation)
    world.pass_time(5_000)
    done(client.load(""))
    world.write(0)
    world.pass_time(10)
    world.write(3)
    done(client.read(3))
    done(client.read(0))
    assert len(list(missing_causes(world))) == missing
