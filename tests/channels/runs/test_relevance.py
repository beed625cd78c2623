"""Relevant records: a run without them reads and executes nothing else, and no channel misses or repeats a result by it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.compute as pc
import pytest

from quaestor.channels.rewriting.compilation import compile_channel
from quaestor.channels.rewriting.definition import ChannelDefinition, Parameter
from quaestor.channels.runs import relations
from quaestor.channels.runs.run import IDLE, Runner
from quaestor.tables.schema import Type
from quaestor.tables.versioned import VersionedTable
from tests.channels.world import World

HATEFUL = "SELECT t.tid FROM Tweets t WHERE is_new(t) AND t.hateful_flag AND t.area_code = area"
JOINED = "SELECT t.tid, s.sid FROM Tweets t JOIN Schools s ON s.area_code = t.area_code WHERE is_new(t) AND t.area_code = 'A'"
BODIES = {
    "a flag": (HATEFUL, [["t.hateful_flag"]]),
    "a flag in a join's condition": (
        "SELECT s.sid FROM Schools s JOIN Tweets t ON t.hateful_flag AND is_new(t) WHERE s.area_code = area",
        [["t.hateful_flag"]],
    ),
    "a value": (JOINED, [["t.area_code = 'A'"]]),
    "several values": (
        "SELECT t.tid FROM Tweets t WHERE is_new(t) AND (t.area_code IN ('A', 'B') AND t.tid >= 3) AND t.text = area",
        [["t.area_code IN ('A', 'B') AND t.tid >= 3"]],
    ),
    "no constant": ("SELECT t.tid FROM Tweets t WHERE is_new(t) AND t.area_code = area", [[""]]),
    "two new relations": (
        "SELECT t.tid, o.oid FROM Tweets t, OfficerLocations o WHERE is_new(t) AND is_new(o) "
        "AND o.oid = 1 AND NOT t.hateful_flag",
        [["NOT t.hateful_flag", "o.oid = 1"]],
    ),
    "two SELECTs": (
        "SELECT t.tid FROM Tweets t WHERE is_new(t) AND t.tid = 1 "
        "UNION ALL SELECT t.tid FROM Tweets t WHERE is_new(t) AND t.tid = 2",
        [["t.tid = 1"], ["t.tid = 2"]],
    ),
    "a SELECT of stored records": (
        "SELECT t.tid FROM Tweets t WHERE is_new(t) AND t.tid = 1 UNION ALL SELECT s.sid FROM Schools s WHERE s.area_code = area",
        [],
    ),
    "either new": ("SELECT t.tid, o.oid FROM Tweets t, OfficerLocations o WHERE is_new(t) OR is_new(o)", []),
    "an outer join": ("SELECT s.sid, t.tid FROM Schools s LEFT JOIN Tweets t ON is_new(t) AND t.tid = 1", []),
    "a count of nothing": ("SELECT count(*) AS n FROM Tweets t WHERE is_new(t) AND t.hateful_flag", []),
    "a call that may fail": ("SELECT t.tid FROM Tweets t WHERE is_new(t) AND CAST(t.text AS BIGINT) = 1", [[""]]),
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.police()
    return world


@pytest.mark.parametrize("name", BODIES)
def test_the_constant_conditions_of_a_body_are_those_that_every_result_needs(world: World, name: str) -> None:
    """Conditions with parameters, other tables or calls do not count; neither does a relation that a result can do without."""
    body, expected = BODIES[name]
    compiled = compile_channel(
        ChannelDefinition(name="c", body=body, parameters=(Parameter("area", Type.TEXT),)), world.shapes()
    )
    assert [[condition.text for condition in conditions] for conditions in compiled.relevant] == expected


class NoExecutor:
    """Executor that must not be asked."""

    def rows(self, *_: Any) -> Any:
        raise AssertionError("a plan was executed")

    def close(self) -> None: ...


def test_a_run_without_relevant_records_reads_and_executes_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bounds move on all the same, so a later run does not see its records again."""
    channel = world.create(JOINED)
    mine = world.subscribe()
    world.dataset("Schools").insert([{"sid": 1, "area_code": "A"}])
    world.dataset("Tweets").insert([{"tid": 1, "area_code": "B"}])
    read: list[str] = []
    parts = VersionedTable.parts
    scan = VersionedTable.scan

    def noted(whole: Any) -> Any:
        def reading(table: VersionedTable, *given: Any, **named: Any) -> Any:
            read.append(table.name)
            return whole(table, *given, **named)

        return reading

    with monkeypatch.context() as patch:
        patch.setattr(VersionedTable, "scan", noted(scan))
        patch.setattr(VersionedTable, "parts", noted(parts))
        idle = Runner(world.catalogue, NoExecutor()).run(channel, 10_000_000)
    assert (idle.published, idle.rows, idle.reasons, read) == (True, 0, (IDLE,), ["Tweets"])
    assert set(idle.seconds) == {"load", "publish"}
    world.dataset("Tweets").insert([{"tid": 2, "area_code": "A"}])
    outcome = world.run(at=20)
    assert outcome.previous == idle.current
    assert world.delivered() == [(mine, {"tid": 2, "sid": 1})]
    assert world.run(at=30).reasons == (IDLE,), "no new record at all"


def test_channels_with_different_values_look_into_one_index(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new records of one instant are searched once for all of them, and each channel has its own results."""
    areas = [f"area{number}" for number in range(20)]
    body = "SELECT t.tid FROM Tweets t WHERE is_new(t) AND t.area_code = '{}'"
    shared = relations.Relations(world.catalogue)
    subscribers = {}
    for area in areas:
        world.create(body.format(area), name=area)
        subscribers[area] = world.subscribe(name=area)
    world.dataset("Tweets").insert([{"tid": 1, "area_code": "area3"}, {"tid": 2, "area_code": "area7"}])
    unique, searched = pc.unique, []

    def counted(column: Any) -> Any:
        searched.append(1)
        return unique(column)

    monkeypatch.setattr(pc, "unique", counted)
    runner = Runner(world.catalogue, world.executor, relations=shared)
    outcomes = {area: runner.run(world.channels[area], 10_000_000, due=1) for area in areas}
    assert {area for area, outcome in outcomes.items() if outcome.reasons != (IDLE,)} == {"area3", "area7"}
    assert [entry for area in areas for entry in world.delivered(area)] == [
        (subscribers["area3"], {"tid": 1}),
        (subscribers["area7"], {"tid": 2}),
    ]
    reads = len(areas) - sum(outcome.shared == ("Tweets",) for outcome in outcomes.values())
    assert len(searched) == reads, "once for each set of new records"


@pytest.mark.parametrize("name", [name for name, (_, conditions) in BODIES.items() if conditions])
def test_results_are_those_of_runs_that_always_execute_their_plans(tmp_path: Path, name: str) -> None:
    """Random records, changes and deletions, few of them relevant."""
    body = BODIES[name][0]
    if "CAST" in body:
        body = body.replace("CAST", "TRY_CAST")
    random, worlds = Random(name), [World(tmp_path / "with"), World(tmp_path / "without")]
    for world in worlds:
        world.police()
        world.create(body, "area text")
        world.subscriptions().add_all([("b", [area]) for area in ("A", "b", None)])
    compiled = worlds[1].channels["c"]
    assert compiled.relevant
    worlds[1].channels["c"] = replace(compiled, relevant=())
    idle = 0
    for step in range(1, 8):
        tweets = [
            {
                "tid": random.randrange(4),
                "area_code": random.choice("ABC"),
                "text": random.choice(["A", "b"]),
                "hateful_flag": random.choice([True, False, None]),
            }
            for _ in range(random.choice([0, 0, 1]))
        ]
        officers = [{"oid": random.randrange(3)} for _ in range(random.choice([0, 1]))]
        gone = [{"tid": random.randrange(4)}] if random.random() < 0.3 else []
        outcomes = []
        for world in worlds:
            world.dataset("Tweets").upsert(tweets)
            world.dataset("Tweets").delete(gone)
            world.dataset("OfficerLocations").upsert(officers)
            world.dataset("Schools").upsert([{"sid": step, "area_code": "A"}])
            outcomes.append(world.run(at=step * 10))
        idle += outcomes[0].reasons == (IDLE,)
        assert outcomes[0].rows == outcomes[1].rows, step
    rows = [sorted(json.dumps(record) for _, record in world.delivered()) for world in worlds]
    assert rows[0] == rows[1]
    assert idle


def test_explain_names_the_records_without_which_a_run_does_nothing(world: World) -> None:
    """Each SELECT of a UNION has its own sentence; a body that can do without new records has none."""
    sentence = (
        "without a new record of Tweets with t.hateful_flag a run reads nothing else and executes no plan, because"
    )
    compiled = world.create(HATEFUL, "area")
    assert [line for line in compiled.explanation({}) if line.startswith(sentence)]
    both = world.create(BODIES["two SELECTs"][0], name="both")
    assert [line[:13] for line in both.explanation({}) if "without" in line] == ["SELECT 1 of 2", "SELECT 2 of 2"]
    stored = world.create(BODIES["either new"][0], name="stored")
    assert not [line for line in stored.explanation({}) if "without" in line]
