"""Shared registrations of a process: the queries that may rely on one, and its lifetime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from quaestor.invalidation.registry.registration_ids import id_for, in_round, renewable
from quaestor.invalidation.registry.shared_registrations import MOST_SHARED, SharedRegistrations
from quaestor.model import Operation, Query, Registration

QUERY = Query(namespace="a.b", operation=Operation.FIND, filter={"x": 1})


def registered(name: str, *, since: int = 10, read_at: int = 12, expires_at_ms: int = 100_000) -> Registration:
    return Registration(
        id=name, tenant="t", query_id="q", query=QUERY, since=since, read_at=read_at, members=(), last=None,
        expires_at_ms=expires_at_ms,
    )  # fmt: skip


def holding(dead: set[str] | None = None, **fields: int) -> SharedRegistrations:
    """One registration, active and stored."""
    held = SharedRegistrations(dead if dead is not None else set())
    held.open(registered("r", **fields))
    held.offer("r", rate_hz=0.5)
    held.lease("r", until_ms=50_000)
    return held


def at_hand(held: SharedRegistrations, *, since: int = 12, expires_at_ms: int = 80_000) -> str | None:
    reused = held.reuse("q", members=(), since=since, expires_at_ms=expires_at_ms)
    return None if reused is None else reused[0]


def test_one_that_is_not_active_is_not_relied_on() -> None:
    held = SharedRegistrations(set())
    held.open(registered("r"))
    assert at_hand(held) is None


def test_a_response_that_read_the_same_state_relies_on_the_registration() -> None:
    assert holding().reuse("q", members=(), since=12, expires_at_ms=80_000) == ("r", 0.5)


def test_a_response_that_may_have_read_an_older_state_does_not() -> None:
    """The registration's read may hold a write that the newcomer's missed, and would not be killed by it."""
    assert at_hand(holding(), since=11) is None
    assert at_hand(holding(since=20, read_at=0), since=19) is None
    assert at_hand(holding(since=20, read_at=0), since=20) == "r"


def test_a_response_with_other_members_does_not() -> None:
    """Ties, limits without a sort and single batches: one state, two results, each guarded by its own members."""
    held = SharedRegistrations(set())
    for name, members in (("a", (1, 2)), ("b", (1, 3))):
        held.open(replace(registered(name), members=members))
        held.offer(name, rate_hz=0.0)

    def found(*members: int) -> str | None:
        shared = held.reuse("q", members=members, since=12, expires_at_ms=80_000)
        return None if shared is None else shared[0]

    assert (found(1, 2), found(1, 3)) == ("a", "b")
    assert [found(1), found(2, 1), found()] == [None, None, None]
    assert held.reuse("q", members=None, since=12, expires_at_ms=80_000) is None


def test_any_response_may_rely_on_a_registration_without_members() -> None:
    held = SharedRegistrations(set())
    held.open(replace(registered("all"), members=None))
    held.offer("all", rate_hz=0.0)
    for members in (None, (), (1, 2)):
        assert held.reuse("q", members=members, since=12, expires_at_ms=80_000) == ("all", 0.0)


def test_a_response_that_lives_longer_does_not() -> None:
    assert at_hand(holding(), expires_at_ms=100_001) is None


def test_the_dead_are_not_relied_on_even_when_their_tombstone_is_gone() -> None:
    dead: set[str] = set()
    held = holding(dead)
    dead.add("r")
    assert at_hand(held) is None
    held.remove(["r"])
    dead.clear()
    assert at_hand(held) is None


def test_after_a_reset_nothing_is_relied_on() -> None:
    dead: set[str] = set()
    held = holding(dead)
    dead.update(held)
    held.withdraw_all()
    dead.clear()
    assert at_hand(held) is None


def test_one_that_died_before_it_was_offered_is_not_offered() -> None:
    held = SharedRegistrations({"r"})
    held.open(registered("r"))
    held.offer("r", rate_hz=0.0)
    assert at_hand(held) is None


def test_it_is_kept_until_the_last_who_relies_on_it_is_done() -> None:
    held = holding()
    assert at_hand(held) == "r"
    assert held.expired(60_000) == [], "the newcomer is still being stored"
    held.lease("r", until_ms=70_000)
    assert held.expired(62_000) == []
    assert held.expired(90_000) == ["r"]


def test_a_newcomer_that_is_not_stored_after_all_changes_nothing() -> None:
    held = holding()
    assert at_hand(held) == "r"
    held.lease("r", until_ms=0)
    assert held.expired(49_000) == []
    assert held.expired(55_000) == ["r"]


def test_alone_its_last_lease_counts() -> None:
    held = holding()
    held.lease("r", until_ms=0)
    assert held.expired(2_000) == ["r"]


def test_a_shared_registration_survives_the_death_of_one_response() -> None:
    dead: set[str] = set()
    held = holding(dead)
    assert at_hand(held) == "r"
    assert held.remove(["r"], unshared=True) == {}
    dead.add("r")
    assert held.remove(["r"], unshared=True) == {"q": ["r"]}
    assert len(held) == 0


def test_so_many_rely_on_it_then_one_makes_another() -> None:
    held = holding()
    ids = [at_hand(held) for _ in range(MOST_SHARED)]
    assert ids == ["r"] * (MOST_SHARED - 1) + [None]
    assert at_hand(held) == "r", "a request during the activation of the other registration"
    held.open(registered("s"))
    held.offer("s", rate_hz=0.0)
    assert at_hand(held) == "s"


def test_without_another_it_ends_at_twice_as_many() -> None:
    held = holding()
    ids = [at_hand(held) for _ in range(3 * MOST_SHARED)]
    assert ids.count("r") == 2 * MOST_SHARED - 1


steps = st.lists(
    st.one_of(
        st.just(("write", 0)),
        st.just(("report", 0)),
        st.tuples(st.just("begin"), st.integers(0, 3)),
        st.tuples(st.just("read"), st.integers(0, 3)),
        st.tuples(st.just("store"), st.integers(0, 3)),
    ),
    max_size=60,
)


@given(steps)
def test_no_response_outlives_a_write_that_it_has_not_seen(steps: list[tuple[str, int]]) -> None:
    """Handlers begin, read and store in any order, and a grid reports late:
    every write after its read kills a registration.

    Once every write was worked off, no live response shows an old state.
    """
    dead: set[str] = set()
    held = SharedRegistrations(dead)
    version = watermark = 1
    begun: dict[int, int] = {}
    read: dict[int, tuple[int, int]] = {}
    read_at: dict[str, int] = {}
    stored: list[tuple[str, int]] = []
    for step, who in steps:
        if step == "write":
            version += 1
        elif step == "report":
            watermark = version
        elif step == "begin":
            begun[who] = watermark
        elif step == "read" and who in begun:
            read[who] = (begun.pop(who), version)
        elif step == "store" and who in read:
            since, seen = read.pop(who)
            registration_id = at_hand(held, since=since)
            if registration_id is None:
                registration_id = f"r{len(read_at)}"
                read_at[registration_id] = seen
                held.open(registered(registration_id, since=since, read_at=seen))
                held.offer(registration_id, rate_hz=0.0)
            held.lease(registration_id, until_ms=50_000)
            stored.append((registration_id, seen))
    killed = {name for name, at in read_at.items() if at < version}
    assert all(seen == version for name, seen in stored if name not in killed)


ROUND = renewable(id_for("p", 1, "q"))


def rechecked(name: str, digest: bytes, **fields: Any) -> Registration:
    return replace(registered(name), members=None, digest=digest, **fields)


def test_a_rechecked_registration_is_shared_only_for_the_same_result() -> None:
    """One state may have two results (ties before a group): a recheck compares one of them,
    and proves nothing of the other.

    Any response may rely on a registration that is not rechecked.
    """
    held = SharedRegistrations(set())
    held.open(rechecked(ROUND, b"one"))
    held.offer(ROUND, rate_hz=0.0)
    for digest, round_found in ((b"one", ROUND), (b"other", None), (None, None)):
        reused = held.reuse("q", members=None, since=12, expires_at_ms=80_000, digest=digest)
        assert (reused and reused[0]) == round_found
    held.open(replace(registered("plain"), members=None))
    held.offer("plain", rate_hz=0.0)
    for digest in (b"other", None):
        assert held.reuse("q", members=None, since=12, expires_at_ms=80_000, digest=digest) == ("plain", 0.0)


def test_users_of_a_held_registration_keep_it_when_another_answer_ends() -> None:
    """A held registration is dead for the moment only; once dead for good it is forgotten.
    No answer joins it meanwhile.
    """
    dead: set[str] = set()
    held = SharedRegistrations(dead)
    held.open(rechecked(ROUND, b"one"))
    held.offer(ROUND, rate_hz=0.0)
    assert held.reuse("q", members=None, since=12, expires_at_ms=80_000, digest=b"one") is not None
    held.held = waiting = {ROUND}
    dead.add(ROUND)
    assert held.reuse("q", members=None, since=12, expires_at_ms=80_000, digest=b"one") is None
    assert held.remove([ROUND], unshared=True) == {}
    waiting.clear()
    assert held.remove([ROUND], unshared=True) == {"q": [ROUND]}


def test_a_further_round_is_dated_anew_and_cancelled_by_its_own_id() -> None:
    """Cells know each round by itself; who joins later must have read what the new reading may hold."""
    held = SharedRegistrations(set())
    held.open(rechecked(ROUND, b"one"))
    assert held.is_current(ROUND)
    second = held.next_round(ROUND, since=30, read_at=40)
    assert second is not None
    assert (second.id, second.since, second.read_at, second.digest) == (in_round(ROUND, 1), 30, 40, b"one")
    assert (held.is_current(ROUND), held.is_current(second.id)) == (False, True)
    held.offer(ROUND, rate_hz=0.0)
    assert held.reuse("q", members=None, since=39, expires_at_ms=80_000, digest=b"one") is None
    assert held.reuse("q", members=None, since=40, expires_at_ms=80_000, digest=b"one") is not None
    assert held.remove([ROUND]) == {"q": [second.id]}
    assert held.next_round(ROUND, since=50, read_at=60) is None
