"""Registrations that a write may have changed are held until their owner says that they were renewed, or their time is over."""

from __future__ import annotations

import asyncio

import pytest

from quaestor.invalidation.registry.held_registrations import HeldRegistrations
from quaestor.invalidation.registry.registration_ids import id_for, in_round, partition_of, renewable, round_of
from quaestor.invalidation.registry.validity import Validity
from quaestor.model import Cell, Invalidated, MatchType, OutsideGrid, Renewed
from tests.hand_driven import HandClock

LIMIT_MS = 500
OWN, FOREIGN, PLAIN = renewable(id_for("me", 7, "q")), renewable(id_for("t.1~other", 7, "q")), id_for("me", 8, "q")


class World:
    """One process's view. wanted: whether it wants to recheck its own."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.validity = Validity()
        self.wanted = True
        self.reported: list[tuple[str, str]] = []
        self.held = HeldRegistrations(
            self.validity, origin="me", limit_ms=LIMIT_MS, clock=self.clock, wanted=lambda name, query_id: self.wanted
        )

    def change(self, name: str, number: int = 0, **other: object) -> tuple[str, ...]:
        """A cell tells of a change; returns what is dead for good."""
        fields = {
            "match_type": MatchType.MATCH,
            "key": 1,
            "exact": False,
            "source": Cell(query_partition=0, write_partition=0),
        }
        notification = Invalidated(
            registration_ids=(in_round(name, number),), query_id="q", version=5, written_at_ms=1, **(fields | other)
        )  # type: ignore[arg-type]
        dead = self.held.take(notification)
        return () if dead is None else dead.registration_ids

    def renewed(self, name: str, number: int) -> None:
        self.held.renew(Renewed(registration_id=in_round(name, number)))

    def alive(self, name: str) -> bool:
        return not self.validity.any_dead((name,))

    # The rechecker's side.

    def held_again(self, name: str) -> None:
        self.reported.append(("held", name))

    def given_up(self, message: Invalidated) -> None:
        self.reported += [("given up", name) for name in message.registration_ids]

    def settled(self, name: str, *, renewed: bool) -> None:
        self.reported.append(("renewed" if renewed else "dead", name))


class Rechecker:
    """The world as HeldRegistrations sees it."""

    waiting = 0

    def __init__(self, world: World) -> None:
        self._world = world
        self.given_up = world.given_up
        self.settled = world.settled

    def held(self, name: str, message: Invalidated) -> None:
        self._world.held_again(name)


@pytest.fixture
def world() -> World:
    made = World()
    made.held.rechecker = Rechecker(made)
    return made


def test_ids_contain_their_round_and_keep_their_partition() -> None:
    """Rounds work with any tenant's name; names that are no such ids stay unchanged."""
    for name in (OWN, FOREIGN):
        assert round_of(name) == 0
        assert round_of(in_round(name, 12)) == 12
        assert in_round(in_round(name, 12), 0) == name
        assert partition_of(in_round(name, 3), 7) == partition_of(name, 7)
    for name in (PLAIN, "/a.1#b", "https://h/x.3#0123456789abcdefg", ""):
        assert round_of(name) is None
        assert in_round(name, 3) == name


@pytest.mark.parametrize("name", [OWN, FOREIGN])
def test_a_held_registration_is_not_served_and_lives_when_it_is_renewed(world: World, name: str) -> None:
    """In the process that made it, and in every other one."""
    assert world.change(name) == ()
    assert not world.alive(name)
    assert world.held.any_held((name,))
    world.renewed(name, 1)
    assert world.alive(name)
    assert not world.held.any_held((name,))
    assert world.held.rounds((name,)) == 1


def test_a_registration_not_renewed_in_time_is_dead_for_good(world: World) -> None:
    """A renewal that comes later counts for nothing."""
    world.change(FOREIGN)
    assert world.held.over() == []
    world.clock.now_ms += LIMIT_MS
    (dead,) = world.held.over()
    assert dead.registration_ids == (FOREIGN,)
    world.renewed(FOREIGN, 1)
    assert not world.alive(FOREIGN)


def test_a_clock_that_is_set_back_holds_nothing_for_longer(world: World) -> None:
    world.change(FOREIGN)
    world.clock.now_ms -= 3_600_000
    assert len(world.held.over()) == 1


def test_a_change_of_the_next_round_makes_its_renewal_void(world: World) -> None:
    """The change came before the renewal, so the renewed result may be outdated; a further round may renew it."""
    world.change(OWN)
    world.change(OWN, 1)
    world.renewed(OWN, 1)
    assert not world.alive(OWN)
    world.renewed(OWN, 2)
    assert world.alive(OWN)


def test_a_late_word_of_an_earlier_round_counts_for_nothing(world: World) -> None:
    """The round that is active has seen that write; a change of its own holds it again."""
    world.change(OWN)
    world.renewed(OWN, 1)
    assert world.change(OWN, 0) == ()
    assert world.alive(OWN)
    world.change(OWN, 1)
    assert not world.alive(OWN)


def test_a_registration_that_is_not_worth_a_recheck_is_dead_at_once_for_all_processes(world: World) -> None:
    world.wanted = False
    assert world.change(OWN) == (OWN,)
    assert world.reported == [("given up", OWN)]


@pytest.mark.parametrize(
    "other",
    [{"key": None}, {"match_type": MatchType.EVICTED}, {"source": OutsideGrid.NAME}],
    ids=["collection-or-gap", "evicted", "by-name"],
)
def test_a_definite_change_is_never_held(world: World, other: dict[str, object]) -> None:
    """A definite change also ends a registration that is held already."""
    assert world.change(OWN, **other) == (OWN,)
    assert world.change(FOREIGN) == ()
    assert world.change(FOREIGN, **other) == (FOREIGN,)
    world.renewed(FOREIGN, 1)
    assert not world.alive(FOREIGN)
    assert world.change(PLAIN) == (PLAIN,)


def test_after_a_reset_nothing_is_held(world: World) -> None:
    world.change(OWN)
    world.held.clear()
    world.renewed(OWN, 1)
    assert not world.alive(OWN)
    world.held.tell()
    assert world.reported == [("held", OWN), ("dead", OWN)]


@pytest.mark.anyio
async def test_requests_wait_for_the_verdict_and_no_longer_than_they_may(world: World) -> None:
    """The wait ends with a renewal or a death, and nothing is left of requests that do not wait any more."""
    await world.held.settled((OWN,), within_s=60)
    world.change(OWN)
    waiting = asyncio.create_task(world.held.settled((OWN, PLAIN), within_s=60))
    await world.held.settled((OWN,), within_s=0.001)
    assert not waiting.done()
    world.renewed(OWN, 1)
    await waiting
    assert not world.held._waiting
