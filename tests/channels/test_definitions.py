"""Definitions: durable, safe among racing processes, dropped only when nothing uses them."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from quaestor.channels.definitions import Definition, Definitions, NameTakenError, State, key_of
from quaestor.channels.statements.model import Kind
from quaestor.errors import ConfigurationError
from quaestor.tables.storage import FolderStorage


def feed(name: str, **fields: object) -> Definition:
    """Return the definition of a feed."""
    return Definition(**{"kind": Kind.FEED, "name": name, "text": f"CREATE FEED {name} WITH {{}}", **fields})  # type: ignore[arg-type]


def definitions(folder: Path, **fields: int) -> Definitions:
    """Return the definitions of a folder, as another process sees them."""
    return Definitions(FolderStorage(folder), **fields)  # type: ignore[arg-type]


def test_definitions_survive_and_names_ignore_case(tmp_path: Path) -> None:
    """Another process finds a definition; a name is taken in any case, and is free for another kind."""
    definitions(tmp_path).create(feed("Tweets"))
    later = definitions(tmp_path)
    assert later.get(Kind.FEED, "tweets").name == "Tweets"
    with pytest.raises(NameTakenError, match="feed 'Tweets' exists"):
        later.create(feed("TWEETS"))
    later.create(Definition(kind=Kind.TYPE, name="Tweets", text="CREATE TYPE Tweets AS (a bigint)"))
    assert [found.kind for found in later.named("tweets")] == [Kind.TYPE, Kind.FEED]
    with pytest.raises(ConfigurationError, match="there is no feed 'other'; there are tweets"):
        later.get(Kind.FEED, "other")


def test_a_drop_of_what_is_in_use_names_the_users(tmp_path: Path) -> None:
    """The drop is refused until the last user is gone; so is a replacement."""
    known = definitions(tmp_path)
    known.create(feed("source"))
    for name in ("a", "b"):
        known.create(feed(name, uses=(key_of(Kind.FEED, "source"),)))
    with pytest.raises(ConfigurationError, match="feed 'source' is in use: drop feed a, feed b first"):
        known.begin_drop(Kind.FEED, "source")
    with pytest.raises(ConfigurationError, match="is in use"):
        known.replace(feed("source"))
    for name in ("a", "b"):
        known.end_drop(known.begin_drop(Kind.FEED, name))
    known.end_drop(known.begin_drop(Kind.FEED, "source"))
    assert known.all() == []


def test_nothing_new_uses_what_is_missing_unfinished_or_being_dropped(tmp_path: Path) -> None:
    """A definition that a killed process left behind serves nobody, and can be dropped."""
    known = definitions(tmp_path)
    user = feed("user", uses=(key_of(Kind.FEED, "source"),))
    with pytest.raises(ConfigurationError, match="uses feed 'source', which does not exist"):
        known.create(user)
    unfinished = known.create(feed("source", state=State.CREATING))
    with pytest.raises(ConfigurationError, match="which is not ready \\(creating\\)"):
        known.create(user)
    with pytest.raises(NameTakenError, match="if its process was killed, drop it first"):
        known.create(feed("source"))
    known.ready(unfinished)
    known.begin_drop(Kind.FEED, "source")
    with pytest.raises(ConfigurationError, match="which is not ready \\(dropping\\)"):
        known.create(user)
    with pytest.raises(ConfigurationError, match="was dropped while it was created"):
        known.ready(unfinished)


def test_a_user_has_a_quota_and_the_operator_has_none(tmp_path: Path) -> None:
    """The quota counts a user's own definitions; a dropped one no longer counts."""
    known = definitions(tmp_path, most_of_user=2)
    for name in ("a", "b"):
        known.create(feed(name, user="ann"))
    with pytest.raises(ConfigurationError, match="'ann' owns 2 definitions, the most that are allowed"):
        known.create(feed("c", user="ann"))
    known.create(feed("c", user="ben"))
    for name in ("d", "e", "f"):
        known.create(feed(name))
    known.end_drop(known.begin_drop(Kind.FEED, "a"))
    known.create(feed("g", user="ann"))


def _race(folder: Path, number: int, begin: object, outcomes: object) -> None:
    known = definitions(folder)
    begin.wait()  # type: ignore[attr-defined]
    for turn in range(8):
        known.create(feed(f"own_{number}_{turn}"))
        try:
            known.create(feed(f"shared_{turn}", user=str(number)))
            outcomes.put(turn)  # type: ignore[attr-defined]
        except NameTakenError:
            pass
        known.change(Kind.FEED, "counter", lambda found: replace(found, text=found.text + "."))


def test_racing_processes_lose_nothing(tmp_path: Path) -> None:
    """Every change of four processes is there at the end; a shared name has exactly one owner."""
    definitions(tmp_path).create(feed("counter"))
    context = multiprocessing.get_context("spawn")
    begin, outcomes = context.Barrier(4), context.Queue()
    processes = [context.Process(target=_race, args=(tmp_path, number, begin, outcomes)) for number in range(4)]
    for process in processes:
        process.start()
    winners = Counter(outcomes.get(timeout=120) for _ in range(8))
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    known = definitions(tmp_path)
    names = {found.name for found in known.all()}
    assert names == {"counter"} | {f"shared_{t}" for t in range(8)} | {
        f"own_{n}_{t}" for n in range(4) for t in range(8)
    }
    assert winners == Counter(range(8))
    assert known.get(Kind.FEED, "counter").text.count(".") == 32


def _drop(folder: Path, begin: object) -> None:
    known = definitions(folder)
    begin.wait()  # type: ignore[attr-defined]
    for number in range(10):
        try:
            known.end_drop(known.begin_drop(Kind.FEED, f"source_{number}"))
        except ConfigurationError:
            assert known.users_of(Kind.FEED, f"source_{number}")


def _use(folder: Path, begin: object) -> None:
    known = definitions(folder)
    begin.wait()  # type: ignore[attr-defined]
    for number in range(10):
        try:
            known.create(feed(f"user_{number}", uses=(key_of(Kind.FEED, f"source_{number}"),)))
        except ConfigurationError:
            assert known.find(Kind.FEED, f"user_{number}") is None


def test_a_drop_and_a_new_user_never_both_succeed(tmp_path: Path) -> None:
    """Whichever is first wins: no definition uses a missing one."""
    known = definitions(tmp_path)
    for number in range(10):
        known.create(feed(f"source_{number}"))
    context = multiprocessing.get_context("spawn")
    begin = context.Barrier(2)
    processes = [context.Process(target=work, args=(tmp_path, begin)) for work in (_drop, _use)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    for number in range(10):
        source, user = (known.find(Kind.FEED, f"{name}_{number}") for name in ("source", "user"))
        assert (source is None) == (user is None)
