"""Shared reads: channels that are due together deliver what each of them delivers alone, and read equal relations once."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from quaestor.channels.rewriting import compilation
from quaestor.channels.rewriting.compilation import FEW_PAIRS
from quaestor.channels.rewriting.shared_joins import asked_by_several
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
    "joined": "SELECT t.tid, s.name FROM Tweets t, Schools s WHERE is_new(t) AND t.area_code = s.area_code "
    "AND s.area_code = area",
    "turned": "SELECT b.name || a.tid AS label FROM Schools b JOIN Tweets a ON b.area_code = a.area_code AND is_new(a) "
    "WHERE b.area_code = area",
    "counted": "SELECT s.name, count(t.tid) AS n FROM Tweets t, Schools s WHERE is_new(t) AND t.area_code = s.area_code "
    "AND s.area_code >= area GROUP BY s.name HAVING count(t.tid) > 1",
    "near": "SELECT t.tid, o.oid FROM Tweets t, OfficerLocations o WHERE is_new(t) AND near(t.location, o.location, 3) "
    "AND t.area_code = area",
    "nearer": "SELECT t.tid, o.oid FROM Tweets t, OfficerLocations o WHERE near(t.location, o.location, 3) AND is_new(t) "
    "AND t.area_code <> area",
    "either": "SELECT t.tid, s.name FROM Tweets t, Schools s WHERE is_new(t) AND t.area_code = s.area_code "
    "AND s.area_code = area UNION ALL SELECT t.tid, t.area_code FROM Tweets t WHERE is_new(t) AND t.area_code = area",
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

    def due(self, name: str, at: int, joins: Collection[str] = ()) -> RunOutcome:
        return self.runners[name].run(self.channels[name], at * 1_000_000, due=at * 1_000_000, joins=joins)

    def joins(self, names: Iterable[str]) -> frozenset[str]:
        """Return the joins that several of these channels have."""
        return asked_by_several(self.channels[name].joins for name in names)

    def received(self, name: str) -> list[str]:
        return sorted(f"{self.subscribers[name].index(member)} {record}" for member, record in self.delivered(name))


@pytest.mark.parametrize(("seed", "few_pairs"), [(0, FEW_PAIRS), (1, 0)])
def test_shared_channels_deliver_what_they_deliver_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, few_pairs: int
) -> None:
    """Random writes, and channels that are due at some of the instants. Without few pairs, nearness is joined on cells."""
    monkeypatch.setattr(compilation, "FEW_PAIRS", few_pairs)
    worlds = [Sharing(tmp_path / "shared"), Sharing(tmp_path / "alone", is_alone=True)]
    random, shared = Random(seed), set[str]()
    for at in range(1, 8):
        tweets = [
            {"tid": random.randrange(9), "area_code": random.choice("AB"), "text": str(at), "location": _point(random)}
            for _ in "ab"
        ]
        schools = [{"sid": random.randrange(3), "area_code": random.choice("AB"), "name": str(at)}]
        officers = [{"oid": random.randrange(5), "location": _point(random)}]
        names = random.sample(sorted(BODIES), random.choice([3, len(BODIES)]))
        for world in worlds:
            world.now = at
            world.dataset("Tweets").upsert(tweets)
            world.dataset("Schools").upsert(schools)
            world.dataset("OfficerLocations").upsert(officers)
            joins = world.joins(names) if world is worlds[0] else frozenset[str]()
            outcomes = [world.due(name, at, joins) for name in names]
            shared |= {name for outcome in outcomes for name in outcome.shared} if world is worlds[0] else set()
            assert world is worlds[0] or not any(outcome.shared for outcome in outcomes)
    assert {"Tweets", "join of Schools, Tweets", "join of OfficerLocations, Tweets"} <= shared
    for name in BODIES:
        assert worlds[0].received(name) == worlds[1].received(name), name
        assert worlds[0].received(name), name


def test_equal_joins_have_one_key(tmp_path: Path) -> None:
    """Neither aliases nor the order of tables and conditions matter, nor what a channel makes of the rows; constants do."""
    world = Sharing(tmp_path)
    keys = {name: {join.key for join in channel.joins} for name, channel in world.channels.items()}
    assert keys["joined"] == keys["turned"] == keys["either"] == keys["counted"]
    assert keys["near"] == keys["nearer"]
    (constant,) = world.create(f"{BODIES['joined']} AND t.tid > 1", "area", name="constant").joins
    assert constant.key not in keys["joined"] | keys["near"]
    assert not keys["first"] | keys["pairs"] | keys["again"]


@pytest.mark.parametrize(
    "condition",
    [
        "t.area_code = s.area_code",
        "is_new(t) AND t.tid > s.sid",
        "is_new(t) AND t.area_code = s.area_code OR t.tid = 1",
        "is_new(t) AND t.area_code = s.area_code AND s.sid IN (SELECT o.oid FROM OfficerLocations o)",
        "is_new(t) AND t.area_code = s.area_code AND now() > TIMESTAMP '2020-01-01'",
    ],
)
def test_other_joins_belong_to_their_channel(tmp_path: Path, condition: str) -> None:
    """Old records alone, products, subqueries and the present time are not shared; a condition on the time alone stays."""
    world = World(tmp_path)
    world.police()
    channel = world.create(
        f"SELECT t.tid, s.sid FROM Tweets t, Schools s WHERE ({condition}) AND s.area_code = area", "area"
    )
    assert all("2020" not in join.key for join in channel.joins)
    assert not channel.joins or "now()" in condition


def _point(random: Random) -> list[float]:
    return [random.uniform(0, 6), random.uniform(0, 6)]


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
