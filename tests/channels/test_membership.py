"""Members of groups in memory: after any history they are those of a plain model, at the newest instant and at earlier ones."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from quaestor.channels import membership
from quaestor.channels.membership import group_of
from quaestor.channels.runs.fanning import parameters_in_use
from quaestor.channels.runs.stored_pages import StoredPages
from quaestor.channels.subscriptions import Subscriptions
from quaestor.errors import ConfigurationError
from tests.channels.world import World

BODY = "SELECT t.tid FROM Tweets t WHERE is_new(t) AND t.area_code = area AND t.tid > low"


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.police()
    world.create(BODY, "area", "low")
    return world


class Model:
    """Subscriptions as plain data: broker, parameters and whether it is paused, by id."""

    def __init__(self) -> None:
        self.entries: dict[str, tuple[str, tuple[object, ...], bool]] = {}

    def groups(self) -> dict[str, set[str]]:
        groups: dict[str, set[str]] = {}
        for key, (broker, parameters, paused) in self.entries.items():
            if not paused:
                groups.setdefault(group_of(broker, parameters), set()).add(key)
        return groups

    def parameters(self) -> set[tuple[object, ...]]:
        return {parameters for _, parameters, paused in self.entries.values() if not paused}


def found(subscriptions: Subscriptions, instant: int, groups: list[str]) -> dict[str, set[str]]:
    return {group: set(ids) for group, ids in subscriptions.members(instant, groups).items()}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("folded", [2, 10_000])
def test_members_are_those_of_a_plain_model(
    world: World, seed: int, folded: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes beside the ordered members and among them, and a reader that starts late, all give the same groups."""
    monkeypatch.setattr(membership, "_LEAST_FOLDED", folded)
    random, model, steady = Random(seed), Model(), world.subscriptions()
    seen: list[tuple[int, dict[str, set[str]], set[tuple[object, ...]]]] = []
    for _ in range(14):
        world.now += random.choice([0, 1])
        own = world.subscriptions()
        parameters = random.choice(["A", "B", None]), random.randrange(2)
        broker = random.choice("xy")
        key = random.choice(sorted(model.entries)) if model.entries else ""
        match random.choice(["add", "add", "table", "change", "pause", "resume", "remove"]):
            case "add":
                model.entries[own.add(broker, parameters)] = broker, parameters, False
            case "table":
                rows = {"broker": ["x", "y"], "area": [parameters[0], "B"], "low": [0, parameters[1]]}
                added = own.add_table(pa.table({**rows, "area": pa.array(rows["area"], pa.string())}))
                model.entries[added[0]] = "x", (parameters[0], 0), False
                model.entries[added[1]] = "y", ("B", parameters[1]), False
            case "change" if key:
                own.change(key, parameters=parameters, broker=broker)
                model.entries[key] = broker, parameters, model.entries[key][2]
            case "pause" if key:
                own.pause(key)
                model.entries[key] = *model.entries[key][:2], True
            case "resume" if key:
                own.resume(key)
                model.entries[key] = *model.entries[key][:2], False
            case "remove" if key:
                own.remove(key)
                del model.entries[key]
        seen.append((steady.dataset.snapshots()[0].instant, model.groups(), model.parameters()))
        if random.random() < 0.5:
            assert found(steady, seen[-1][0], [*seen[-1][1], "unknown"]) == seen[-1][1]
    every = sorted({group for _, groups, _ in seen for group in groups})
    for reader in (steady, world.subscriptions()):
        for instant, groups, in_use in (seen[-1], *seen):
            assert found(reader, instant, every) == groups
            rows = parameters_in_use(reader.at(instant)).to_pylist()
            assert sorted(map(str, in_use)) == sorted(str((row["param0"], row["param1"])) for row in rows)


def test_a_table_of_subscriptions_is_added_as_single_ones_are(world: World) -> None:
    """Ids are in the order of the rows, and each id is found with its values and owner."""
    subscriptions = world.subscriptions()
    rows = pa.table({"low": [3, 1, 2], "broker": ["x", "y", "x"], "area": ["B", "A", "A"]})
    ids = subscriptions.add_table(rows, user="ann")
    assert [subscriptions.get(key).parameters for key in ids] == [("B", 3), ("A", 1), ("A", 2)]
    assert [(entry.broker, entry.user) for entry in map(subscriptions.get, ids)] == [
        ("x", "ann"),
        ("y", "ann"),
        ("x", "ann"),
    ]
    world.dataset("Tweets").insert([{"tid": 2, "area_code": "A"}, {"tid": 9, "area_code": "B"}])
    world.run(at=10)
    assert sorted(world.delivered()) == sorted([(ids[0], {"tid": 9}), (ids[1], {"tid": 2})])


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"broker": ["x"], "area": ["A"]}, "lack the column 'low'"),
        ({"broker": ["x"], "area": ["A"], "low": ["many"]}, "parameters do not fit"),
    ],
)
def test_a_table_that_does_not_fit_adds_nothing(world: World, columns: dict[str, list[str]], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        world.subscriptions().add_table(pa.table(columns))
    assert world.subscriptions().all() == []


def test_single_results_come_in_several_parts_of_one_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts lose and repeat nothing, their rows have one sequence of numbers, and one entry of the log holds all of them."""
    from quaestor.channels.runs import fanning

    monkeypatch.setattr(fanning, "_MOST_ROWS", 3)
    world.create("SELECT t.tid FROM Tweets t WHERE is_new(t) AND t.area_code = area", "area", name="i", grouped=False)
    areas = ["A"] * 5 + ["B"] * 4 + ["C"] * 2
    ids = world.subscriptions("i").add_table(pa.table({"broker": ["x", "y", "x"] * 3 + ["x", "y"], "area": areas}))
    world.dataset("Tweets").insert([{"tid": number, "area_code": area} for number, area in enumerate("AABD")])
    outcome = world.run("i", at=10)
    expected = [
        (key, {"tid": tid})
        for key, area in zip(ids, areas, strict=True)
        for tid in {"A": [0, 1], "B": [2]}.get(area, [])
    ]
    assert outcome.rows == len(expected)
    assert sorted(map(str, world.delivered("i"))) == sorted(map(str, expected))
    table = world.catalogue.open("i_results")
    snapshot = table.snapshot()
    assert len({file.first for file in snapshot.files.values()}) == 1
    assert len(snapshot.files) > 2
    assert sorted(row["row"] for row in table.scan(snapshot, -1, snapshot.instant).to_pylist()) == list(
        range(len(expected))
    )
    world.dataset("Tweets").insert([{"tid": 9, "area_code": "C"}])
    world.run("i", at=20)
    expected += [(key, {"tid": 9}) for key, area in zip(ids, areas, strict=True) if area == "C"]
    pages, after, read = StoredPages(world.catalogue), 0, []
    while runs := pages.all("i", after, 1):
        read += [(row.subscriptions[0], json.loads(row.record)) for run in runs for row in run.rows]
        after = runs[-1].run
    assert sorted(map(str, read)) == sorted(map(str, expected)), "readers get whole runs, and each result once"
    own = pages.of_subscription("i", ids[0], 0, 100)
    assert [json.loads(row.record)["tid"] for run in own for row in run.rows] == [0, 1]
