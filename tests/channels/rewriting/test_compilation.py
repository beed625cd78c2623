"""Compilation of channels: refusals with their places, pushed bounds, cells, strategies, and bodies of many forms."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest

from quaestor.channels.rewriting.compilation import compile_channel, compile_ordinary
from quaestor.channels.rewriting.definition import ChannelDefinition, Kind, Parameter, Shape
from quaestor.channels.rewriting.spatial import EARTH_M
from quaestor.channels.runs.queries import Queries
from quaestor.continuous.arrow_sql import selected
from quaestor.continuous.sql.refusals import QueryRefusedError
from quaestor.tables.schema import Type
from tests.channels.world import OFFICERS, SCHOOLS, TWEETS, World

SHAPES = {"Tweets": Shape(TWEETS), "OfficerLocations": Shape(OFFICERS), "Schools": Shape(SCHOOLS, active=False)}


def definition(body: str, *parameters: str, **fields: Any) -> ChannelDefinition:
    return ChannelDefinition(name="c", body=body, parameters=tuple(map(Parameter, parameters)), **fields)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.police()
    return world


@pytest.mark.parametrize(
    ("body", "parameters", "fields", "place", "reason"),
    [
        ("SELECT t.tid\nFROM Twets t", (), {}, (2, 6), "the dataset 'Twets' is unknown"),
        ("SELECT t.ts FROM Tweets t", (), {}, (1, 8), "t.ts is hidden"),
        ("SELECT s.sid FROM Schools s WHERE is_new(s)", (), {}, (1, 35), "the dataset 'Schools' is not active"),
        ("SELECT t.tid FROM Tweets t WHERE is_new(x)", (), {}, (1, 34), "'x' is no dataset in FROM"),
        ("SELECT t.tid FROM Tweets t WHERE is_new(t.tid)", (), {}, (1, 34), "is_new needs the alias"),
        ("SELECT t.tid FROM Tweets t WHERE is_new(t)", (), {"kind": Kind.REPETITIVE}, (1, 34), "repetitive"),
        ("SELECT t.tid FROM Tweets t WHERE is_new(t)", (), {"every_instant": True}, (1, 34), "EVERY INSTANT"),
        ("SELECT random() AS r FROM Tweets t", (), {}, (1, 8), "another value each time"),
        ("SELECT t.tid FROM Tweets t WHERE t.tid = oid + 1", ("oid",), {}, (1, 42), "type of the parameter 'oid'"),
        ("SELECT t.tid FROM Tweets t", ("oid",), {}, (1, 1), "'oid' is not used"),
        ("SELECT t.tid, t.tid FROM Tweets t", (), {}, (1, 8), "two columns of the result are named 'tid'"),
        ("SELECT FROM WHERE", (), {}, (1, 17), "not SQL"),
        ("DELETE FROM Tweets", (), {}, (1, 1), "not one SELECT"),
        ("SELECT t.tid FROM Tweets t WHERE near(t.location, 5)", (), {}, (1, 34), "near has 2 arguments"),
        ("SELECT t.nothing FROM Tweets t", (), {}, (0, 0), "does not fit the datasets"),
        ("SELECT count(*) AS n FROM Tweets t", (), {"every_instant": True}, (1, 1), "aggregates"),
    ],
)
def test_a_refusal_names_place_reason_and_remedy(
    body: str, parameters: tuple[str, ...], fields: dict[str, Any], place: tuple[int, int], reason: str
) -> None:
    with pytest.raises(QueryRefusedError) as refused:
        compile_channel(definition(body, *parameters, **fields), SHAPES)
    assert reason in refused.value.reason
    assert (refused.value.line, refused.value.column) == place
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("condition", "pushed"),
    [
        ("is_new(t)", {"Tweets"}),
        ("is_new(t) AND (is_new(o) OR o.oid = 3)", {"Tweets"}),
        ("is_new(t) AND is_new(o)", {"Tweets", "OfficerLocations"}),
        ("is_new(t) OR is_new(o)", set()),
        ("(is_new(t) AND o.oid = 1) OR (t.tid = 2 AND is_new(t))", {"Tweets"}),
        ("NOT is_new(t)", set()),
        ("active_timestamp(t) > previous_channel_time(t)", {"Tweets"}),
        ("previous_channel_time(t) < active_timestamp(t) AND t.tid > 0", {"Tweets"}),
        ("active_timestamp(t) >= previous_channel_time(t)", set()),
        ("is_new(t) IS NOT NULL", set()),
    ],
)
def test_the_previous_time_is_pushed_where_the_conditions_imply_it(condition: str, pushed: set[str]) -> None:
    """A bound that cannot be pushed travels with each record (T13)."""
    body = f"SELECT t.tid FROM Tweets t, OfficerLocations o WHERE {condition}"
    compiled = compile_channel(definition(body), SHAPES)
    assert {relation.dataset for relation in compiled.relations if relation.new_only} == pushed


def test_the_bound_of_an_outer_join_is_pushed_into_its_inner_side_only() -> None:
    body = "SELECT t.tid FROM Tweets t LEFT JOIN OfficerLocations o ON is_new(o) AND is_new(t)"
    compiled = compile_channel(definition(body), SHAPES)
    assert {relation.dataset for relation in compiled.relations if relation.new_only} == {"OfficerLocations"}


def test_a_run_opens_exactly_the_files_of_its_interval(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pruning is by the log: older files of the dataset are not opened (V8)."""
    from quaestor.tables import versioned

    world.create("SELECT t.tid FROM Tweets t WHERE is_new(t)", start="beginning")
    world.subscribe()
    opened: list[str] = []
    real = versioned.opened

    def counted(table: Any, file: Any) -> Any:
        if table.location.rpartition("/")[2].startswith("Tweets-"):
            opened.append(file.path)
        return real(table, file)

    monkeypatch.setattr(versioned, "opened", counted)
    files: list[str] = []
    for at in range(1, 6):
        world.now = at
        world.dataset("Tweets").upsert([{"tid": at}])
        files = list(world.dataset("Tweets").snapshots()[0].files)
        if at in (3, 5):
            world.run()
    assert opened == files
    world.run(at=9)
    assert len(opened) == 5


def points(random: Random, number: int, *, sphere: bool) -> list[list[float]]:
    if sphere:
        return [
            [
                random.choice([-180, 179.99, random.uniform(-180, 180)]),
                random.choice([-90, 89.99, 0, random.uniform(-90, 90)]),
            ]
            for _ in range(number)
        ]
    return [
        [random.choice([random.uniform(-50, 50), random.randrange(-10, 10) * 5]) for _ in "xy"] for _ in range(number)
    ]


def near(a: list[float], b: list[float], radius: float, *, sphere: bool) -> bool:
    if not sphere:
        return (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 <= radius**2
    (ax, ay), (bx, by) = (map(math.radians, point) for point in (a, b))
    half = math.sin((ay - by) / 2) ** 2 + math.cos(ay) * math.cos(by) * math.sin((ax - bx) / 2) ** 2
    return 2 * EARTH_M * math.asin(math.sqrt(min(1.0, half))) <= radius


@pytest.mark.parametrize(("function", "radius"), [("near", 5), ("near", 0.25), ("near_sphere", 900_000.0)])
def test_cells_find_the_pairs_of_the_exact_test(world: World, function: str, radius: float) -> None:
    """Points on edges of cells, at the poles and at the date line are among them; nothing is found twice (V2)."""
    sphere = function == "near_sphere"
    random = Random(7)
    tweets, officers = points(random, 160, sphere=sphere), points(random, 240, sphere=sphere)
    world.dataset("Tweets").insert({"tid": i, "location": point} for i, point in enumerate([*tweets, None]))
    world.dataset("OfficerLocations").insert({"oid": i, "location": point} for i, point in enumerate([*officers, None]))
    condition = f"{function}(t.location, o.location, {radius})"
    world.create(f"SELECT t.tid, o.oid FROM Tweets t, OfficerLocations o WHERE {condition}", start="beginning")
    world.subscribe()
    outcome = world.run(at=1)
    assert any("cells" in reason for reason in outcome.reasons)
    found = [(record["tid"], record["oid"]) for record in world.of_run(outcome)]
    expected = {
        (i, j) for i, a in enumerate(tweets) for j, b in enumerate(officers) if near(a, b, radius, sphere=sphere)
    }
    assert len(found) == len(set(found))
    assert set(found) == expected
    assert expected


def test_few_pairs_need_no_cells_and_the_reasons_say_so(world: World) -> None:
    """EXPLAIN names each choice with its reason (V1)."""
    body = (
        "SELECT t.tid FROM Tweets t, OfficerLocations o WHERE is_new(t) AND o.oid = oid "
        "AND near(t.location, o.location, 5)"
    )
    compiled = world.create(body, "oid")
    sizes = {relation.name: 10 if relation.new_only else 100_000 for relation in compiled.relations}
    few = "\n".join(compiled.explanation({**dict.fromkeys(sizes, 5), "_subscriptions": 3}))
    assert "exact test of all 25 pairs, because they are few" in few
    many = "\n".join(compiled.explanation({**sizes, "_subscriptions": 1_000_000}))
    assert "t is repeated for adjacent cells, because it is smaller" in many
    assert "1000000 different parameters: hash join" in many
    assert "Tweets: only files of (previous, current]" in many
    assert "OfficerLocations: snapshot at the run's instant" in many


def test_figure_40_nests_the_schools_of_the_area(world: World) -> None:
    """A record of a dataset is a value, and its hidden columns are not in it."""
    world.dataset("Schools").insert(
        [
            {"sid": 2, "area_code": "A", "name": "x"},
            {"sid": 1, "area_code": "A", "name": "y"},
            {"sid": 3, "area_code": "B", "name": "z"},
        ]
    )
    body = (
        "SELECT t.tid, (SELECT list(s ORDER BY s.sid) FROM Schools s "
        "WHERE s.area_code = area) AS schools FROM Tweets t WHERE is_new(t) AND t.hateful_flag AND t.area_code = area"
    )
    world.create(body, "area")
    world.subscribe("A")
    world.subscribe("C")
    world.now = 3
    world.dataset("Tweets").insert(
        [{"tid": 1, "area_code": "A", "hateful_flag": True}, {"tid": 2, "area_code": "B", "hateful_flag": True}]
    )
    world.run(at=10)
    assert [record for _, record in world.delivered()] == [
        {"tid": 1, "schools": [{"sid": 1, "area_code": "A", "name": "y"}, {"sid": 2, "area_code": "A", "name": "x"}]}
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("SELECT * FROM Tweets t WHERE is_new(t) AND t.area_code = area ORDER BY t.tid", {"A": 2, "B": 1}),
        (
            "SELECT t.area_code, count(*) AS n FROM Tweets t WHERE is_new(t) AND t.area_code = area GROUP BY 1",
            {"A": 1, "B": 1},
        ),
        ("SELECT count(*) AS n FROM Tweets t WHERE is_new(t) AND t.area_code = area", {"A": 1, "B": 1, "C": 1}),
        (
            "SELECT t.tid FROM Tweets t WHERE is_new(t) AND t.area_code = area ORDER BY t.tid DESC LIMIT 1",
            {"A": 1, "B": 1},
        ),
        ("SELECT DISTINCT t.area_code FROM Tweets t WHERE is_new(t) AND t.area_code = area", {"A": 1, "B": 1}),
        (
            "SELECT t.tid FROM Tweets t WHERE is_new(t) AND t.area_code = area UNION ALL SELECT t.tid + 10 "
            "FROM Tweets t WHERE is_new(t) AND t.area_code = area",
            {"A": 4, "B": 2},
        ),
        (
            "WITH fresh AS (SELECT * FROM Tweets t WHERE is_new(t)) SELECT f.tid FROM fresh f WHERE f.area_code = area",
            {"A": 2, "B": 1},
        ),
        (
            "SELECT t.tid FROM Tweets t WHERE is_new(t) AND EXISTS (SELECT * FROM Schools s "
            "WHERE s.area_code = t.area_code) AND t.area_code = area",
            {"A": 2},
        ),
        (
            "SELECT t.tid, s.name FROM Tweets t LEFT JOIN Schools s ON s.area_code = t.area_code "
            "WHERE is_new(t) AND t.area_code = area",
            {"A": 2, "B": 1},
        ),
        (
            "SELECT t.tid, rank() OVER (ORDER BY t.tid) AS r FROM Tweets t WHERE is_new(t) AND t.area_code = area",
            {"A": 2, "B": 1},
        ),
        (
            "SELECT t.tid, area AS mine FROM Tweets t WHERE is_new(t) AND t.area_code = area "
            "AND now() > TIMESTAMP '1970-01-01'",
            {"A": 2, "B": 1},
        ),
    ],
)
def test_bodies_of_many_forms_serve_all_subscriptions_in_one_plan(
    world: World, body: str, expected: dict[str, int]
) -> None:
    world.dataset("Schools").insert([{"sid": 2, "area_code": "A", "name": "x"}])
    world.create(body, "area text")
    subscribed = {world.subscribe(area): area for area in ("A", "B", "C")}
    world.now = 3
    world.dataset("Tweets").insert({"tid": i, "area_code": area} for i, area in enumerate("AAB"))
    world.run(at=10)
    counts: dict[str, int] = {}
    for member, _ in world.delivered():
        counts[subscribed[member]] = counts.get(subscribed[member], 0) + 1
    assert counts == expected


def test_names_of_results_keep_their_capitals(world: World) -> None:
    world.create("SELECT t.tid AS tweetId FROM Tweets t WHERE is_new(t)", start="beginning")
    world.subscribe()
    world.dataset("Tweets").insert([{"tid": 1}])
    assert world.of_run(world.run(at=1)) == [{"tweetId": 1}]


def test_every_instant_delivers_what_was_true_between_two_runs_only(world: World) -> None:
    """An officer passes a tweet between two runs: the period does not matter (T11)."""
    body = "SELECT o.oid, t.tid FROM Tweets t, OfficerLocations o WHERE o.oid = oid AND near(t.location, o.location, 5)"
    world.create(body, "oid", every_instant=True, start="beginning")
    world.create(body, "oid", name="periodic", start="beginning")
    for name in ("c", "periodic"):
        world.subscribe(7, name=name)
    world.dataset("Tweets").insert([{"tid": 1, "location": [0, 0]}])
    world.dataset("OfficerLocations").upsert([{"oid": 7, "location": [50, 50]}])
    assert world.of_run(world.run(at=10)) == []
    for at, place in ((12, [1, 1]), (13, [50, 50])):
        world.now = at
        world.dataset("OfficerLocations").upsert([{"oid": 7, "location": place}])
    assert world.of_run(world.run(at=20)) == [{"oid": 7, "tid": 1}]
    world.dataset("OfficerLocations").delete([{"oid": 7}])
    assert world.of_run(world.run(at=30)) == []
    assert world.of_run(world.run("periodic", at=30), "periodic") == []


def test_an_ordinary_query_sees_every_record_as_new(world: World) -> None:
    """The previous time of an analyst's query is before 1970, and the hidden columns are not in its result (T12)."""
    world.dataset("Tweets").insert([{"tid": 1}, {"tid": 2, "text": "x"}])
    rows = Queries(world.catalogue, world.executor).rows("SELECT * FROM Tweets t WHERE is_new(t) AND t.tid > 1")
    assert rows.schema.names == list(TWEETS.names)
    assert rows.to_pylist()[0]["text"] == "x"
    compiled = compile_ordinary("SELECT * FROM Tweets t WHERE is_new(t) AND t.tid > 1", world.shapes())
    assert compiled.columns == TWEETS.names
    assert not compiled.subscribed


def test_a_parameter_takes_the_type_of_the_column_that_it_is_compared_with() -> None:
    body = "SELECT t.tid FROM Tweets t WHERE t.area_code = area AND t.tid > low AND near(t.location, place, r)"
    compiled = compile_channel(definition(body, "area", "low", "place", "r"), SHAPES)
    assert [entry.type for entry in compiled.parameters] == [Type.TEXT, Type.BIGINT, Type.POINT, Type.DOUBLE]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM glob('/*')",
        "ATTACH '/tmp/other.duckdb'",
        "LOAD httpfs",
    ],
)
def test_the_engines_in_this_process_reach_no_files(world: World, text: str) -> None:
    """Compilation refuses such texts. If one passed, the engine of channels and analysts would refuse it too."""
    with pytest.raises(duckdb.PermissionException):
        world.executor._connection.execute(text)
    with pytest.raises(duckdb.PermissionException):
        selected(text, {})
    with pytest.raises(duckdb.InvalidInputException, match="Cannot change configuration"):
        world.executor._connection.execute("SET enable_external_access = true")
