"""Shared reads: channels that are due together deliver what each of them delivers alone, and read equal relations once."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from quaestor.channels.runs.relations import Relations
from quaestor.channels.runs.run import Runner, RunOutcome
from quaestor.tables.versioned import VersionedTable
from tests.channels.world import World

NEW = "SELECT t.tid, t.text FROM Tweets t WHERE is_new(t) AND t.area_code = area"
BODIES = {
    "first": NEW,
    "second": NEW,
    "third": "SELECT t.tid FROM Tweets t WHERE is_new(t) AND t.area_code = area",
    "pairs": "SELECT t.tid, s.sid FROM Tweets t, Schools s WHERE (is_new(t) OR is_new(s)) AND t.area_code = area "
    "AND s.area_code = area",
    "again": "SELECT t.tid, s.name FROM Tweets t, Schools s WHERE is_new(t) AND t.area_code = area AND s.area_code = area",
}


class Sharing(World):
    """World whose channels have a runner each, and one reader; `is_alone`: each has a reader of its own."""

    def __init__(self, folder: Path, *, is_alone: bool = False) -> None:
        super().__init__(folder)
        self.police()
        self.subscribers: dict[str, list[str]] = {}
        relations = Relations(self.catalogue)
        self.runners = {
            name: Runner(self.catalogue, self.executor, relations=None if is_alone else relations) for name in BODIES
        }
        for name, body in BODIES.items():
            self.create(body, "area", name=name, start="beginning")
            self.subscribers[name] = [self.subscribe(area, name=name) for area in "AB"]

    def due(self, name: str, at: int) -> RunOutcome:
        return self.runners[name].run(self.channels[name], at * 1_000_000, due=at * 1_000_000)

    def received(self, name: str) -> list[str]:
        return sorted(f"{self.subscribers[name].index(member)} {record}" for member, record in self.delivered(name))


@pytest.mark.parametrize("seed", range(2))
def test_shared_channels_deliver_what_they_deliver_alone(tmp_path: Path, seed: int) -> None:
    """Random writes, and channels that are due at some of the instants."""
    worlds = [Sharing(tmp_path / "shared"), Sharing(tmp_path / "alone", is_alone=True)]
    random, shared = Random(seed), 0
    for at in range(1, 9):
        tweets = [{"tid": random.randrange(9), "area_code": random.choice("AB"), "text": str(at)} for _ in "ab"]
        schools = [{"sid": random.randrange(3), "area_code": random.choice("AB"), "name": str(at)}]
        names = random.sample(sorted(BODIES), random.choice([2, 5]))
        for world in worlds:
            world.now = at
            world.dataset("Tweets").upsert(tweets)
            world.dataset("Schools").upsert(schools)
            outcomes = [world.due(name, at) for name in names]
            shared += sum(len(outcome.shared) for outcome in outcomes) if world is worlds[0] else 0
            assert world is worlds[0] or not any(outcome.shared for outcome in outcomes)
    assert shared
    for name in BODIES:
        assert worlds[0].received(name) == worlds[1].received(name)
    assert any(worlds[0].received(name) for name in BODIES)


def test_an_equal_relation_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another set of columns is another relation, and a channel with other bounds reads by itself."""
    world = Sharing(tmp_path)
    world.dataset("Tweets").insert([{"tid": 1, "area_code": "A"}])
    read: list[str] = []
    parts = VersionedTable._parts

    def counted(table: VersionedTable, file: Any, *arguments: Any) -> Any:
        if table.name == "Tweets":
            read.append(file.path)
        return parts(table, file, *arguments)

    monkeypatch.setattr(VersionedTable, "_parts", counted)
    assert [world.due(name, 1).shared for name in ("first", "second", "third")] == [(), ("Tweets",), ()]
    assert len(read) == 2
    world.dataset("Tweets").insert([{"tid": 2, "area_code": "A"}])
    world.due("first", 2)
    world.dataset("Tweets").insert([{"tid": 3, "area_code": "A"}])
    assert [world.due(name, 3).shared for name in ("first", "second")] == [(), ()]
    assert world.received("first") == world.received("second")


def test_a_record_between_two_channels_of_one_instant_is_new_in_their_next_runs(tmp_path: Path) -> None:
    world = Sharing(tmp_path)
    world.dataset("Tweets").insert([{"tid": 1, "area_code": "A"}])
    world.due("first", 1)
    world.dataset("Tweets").insert([{"tid": 2, "area_code": "A"}])
    assert world.due("second", 1).rows == 1
    assert [world.due(name, 2).rows for name in ("first", "second")] == [1, 1]
    assert world.received("first") == world.received("second")


def test_a_run_of_another_process_between_two_channels_of_one_instant_repeats_nothing(tmp_path: Path) -> None:
    """The shared state is then older than the channel's bounds, so the channel reads the present state."""
    world = Sharing(tmp_path)
    world.dataset("Tweets").insert([{"tid": 1, "area_code": "A"}])
    world.due("first", 1)
    world.dataset("Tweets").insert([{"tid": 2, "area_code": "A"}])
    Runner(world.catalogue, world.executor).run(world.channels["second"], 1_500_000)
    world.due("second", 1)
    world.due("second", 2)
    assert world.received("second") == ["0 {'tid': 1, 'text': None}", "0 {'tid': 2, 'text': None}"]
