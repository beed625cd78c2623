"""The worked examples of Big Active Data, row by row (Figs. 13, 18, 19, 29, 30, 32, 35, and the reference project's tests)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from quaestor.channels.rewriting.definition import Kind
from quaestor.channels.versions import LatestVersions
from quaestor.tables.schema import TS
from tests.channels.world import World

pytestmark = pytest.mark.usefixtures("each_engine")

NEAR = "near(t.location, o.location, 5)"
_PAIRS = "SELECT o.oid AS officer, t.tid FROM Tweets t, OfficerLocations o WHERE {new} AND t.hateful_flag AND o.oid = oid AND "
BODIES = {
    figure: _PAIRS.format(new=new) + NEAR
    for figure, new in (
        ("29", "is_new(t)"), ("30", "(is_new(t) OR is_new(o))"), ("32", "is_new(t) AND is_new(o)"),
    )
}  # fmt: skip


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def tweet(world: World, tid: int, x: float, y: float, at: float, area: str = "A") -> None:
    world.now = at
    world.dataset("Tweets").insert([{"tid": tid, "location": [x, y], "area_code": area, "hateful_flag": True}])


def move(world: World, oid: int, x: float, y: float, at: float) -> None:
    world.now = at
    world.dataset("OfficerLocations").upsert([{"oid": oid, "location": [x, y]}])


def pairs(records: list[dict[str, Any]]) -> set[tuple[int, int]]:
    assert len({tuple(record.values()) for record in records}) == len(records)
    return {(record["officer"], record["tid"]) for record in records}


class Stepping:
    """Clock of a partition, in ms: hours away from the others, and a minute earlier at each look."""

    def __init__(self, hours: int) -> None:
        self.now_ms = (100 + hours) * 3_600_000

    def __call__(self) -> int:
        self.now_ms -= 60_000
        return self.now_ms


def history(
    world: World, body: str, *, run_at: tuple[float, ...] = (10, 20, 30), skewed_partitions: int = 0, **fields: Any
) -> list[Any]:
    """Return the pairs of each run: u10 moves at 22 to (0, 3), u20 at 13 to (0, 7); t100 at 9, t200 at 28.

    skewed_partitions: partitions with clocks of their own; 0: one partition with the clock of the test.
    """
    world.police(max(1, skewed_partitions))
    for name in ("Tweets", "OfficerLocations") if skewed_partitions else ():
        for table, hours in zip(world.dataset(name).partitions, (0, -7, 5, 11), strict=False):
            table._clock = Stepping(hours)
    world.create(body, "oid", start="beginning", **fields)
    world.subscribe(10)
    world.subscribe(20)
    events = [
        (0, move, 10, 0, 0), (0, move, 20, 0, 10), (9, tweet, 100, 0, 3), (13, move, 20, 0, 7), (22, move, 10, 0, 3),
        (28, tweet, 200, 0, 4), *((at, None) for at in run_at),
    ]  # fmt: skip
    runs = []
    for at, event, *values in sorted(events, key=lambda entry: (entry[0], entry[1] is None)):
        if event is None:
            runs.append(pairs(world.of_run(world.run(at=at))))
        else:
            event(world, *values, at)
    return runs


@pytest.mark.parametrize(
    ("figure", "fields", "expected"),
    [
        ("29", {}, [{(10, 100)}, set(), {(10, 200), (20, 200)}]),
        ("30", {}, [{(10, 100)}, {(20, 100)}, {(10, 100), (10, 200), (20, 200)}]),
        ("30", {"distinct": True}, [{(10, 100)}, {(20, 100)}, {(10, 200), (20, 200)}]),
        ("32", {}, [{(10, 100)}, set(), {(10, 200)}]),
    ],
)
@pytest.mark.parametrize("grouped", [True, False])
def test_the_runs_of_figures_29_30_and_32(
    world: World, figure: str, fields: dict[str, Any], expected: list[Any], grouped: bool
) -> None:
    """Fig. 30 by its predicate delivers (u10, t100) again after u10 moved; with DISTINCT it does not, as the paper says."""
    assert history(world, BODIES[figure], grouped=grouped, **fields) == expected


@pytest.mark.parametrize("partitions", [1, 2, 4])
@pytest.mark.parametrize(
    ("figure", "expected"),
    [
        ("29", [{(10, 100)}, set(), {(10, 200), (20, 200)}]),
        ("30", [{(10, 100)}, {(20, 100)}, {(10, 100), (10, 200), (20, 200)}]),
        ("32", [{(10, 100)}, set(), {(10, 200)}]),
    ],
)
def test_clocks_of_partitions_that_differ_by_hours_and_step_back_change_no_run(
    world: World, figure: str, expected: list[Any], partitions: int
) -> None:
    """Instants order the records of one partition only, so the rows are those of one good clock (T1, T4, T8)."""
    assert history(world, BODIES[figure], skewed_partitions=partitions) == expected


@pytest.mark.parametrize("figure", BODIES)
@pytest.mark.parametrize("run_at", [(10, 20, 30), (10.5, 21.9, 33), (9, 13, 28), (8, 9, 12, 22, 28, 40)])
def test_a_new_tweet_is_delivered_once_however_late_the_runs_are(world: World, figure: str, run_at: Any) -> None:
    """A run examines everything since the run before: a delayed run loses nothing, and an early one repeats nothing."""
    runs = history(world, BODIES[figure], run_at=run_at)
    every = Counter(pair for run in runs for pair in run)
    if figure == "29":
        assert every == Counter({(10, 100): 1, (10, 200): 1, (20, 200): 1})
    assert {tid for _, tid in every} >= ({100, 200} if figure != "32" else set())


def test_figure_13_counts_the_tweets_near_each_officer_and_each_broker_gets_its_own(world: World) -> None:
    """Officer 20 has two subscriptions at two brokers; a count without tweets is 0."""
    world.police()
    for tid, x in ((100, 1), (200, 15), (300, 18)):
        tweet(world, tid, x, x, 1)
    for oid, x in ((10, 0), (20, 15), (30, 40)):
        move(world, oid, x, x, 1)
    body = (
        f"SELECT count(*) AS tweets FROM Tweets t, OfficerLocations o WHERE o.oid = oid AND t.hateful_flag AND {NEAR}"
    )
    world.create(body, "oid", kind=Kind.REPETITIVE, period="10m")
    wanted = {
        world.subscribe(20, broker="1"): 2, world.subscribe(10, broker="2"): 1, world.subscribe(30, broker="2"): 0,
        world.subscribe(20, broker="2"): 2,
    }  # fmt: skip
    world.run(at=600)
    assert {member: record["tweets"] for member, record in world.delivered()} == wanted
    world.run(at=1200)
    assert len(world.delivered()) == 8


class WindowedStreams:
    """GOOD: a streaming join by area code that holds the events of the last seconds, and no stored locations.

    both_ways: whether a location also finds the tweets before it.
    """

    def __init__(self, window: float, *, both_ways: bool) -> None:
        self.window = window
        self.both_ways = both_ways
        self.tweets: list[tuple[float, int, str]] = []
        self.locations: list[tuple[float, int, str]] = []

    def tweet(self, tid: int, area: str, at: float) -> set[tuple[int, int]]:
        self.tweets.append((at, tid, area))
        return {(oid, tid) for when, oid, own in self.locations if own == area and at - self.window < when <= at}

    def move(self, oid: int, area: str, at: float) -> set[tuple[int, int]]:
        self.locations.append((at, oid, area))
        tweets = {(oid, tid) for when, tid, own in self.tweets if own == area and at - self.window < when <= at}
        return tweets if self.both_ways else set()


@pytest.mark.parametrize(
    ("both_ways", "streamed"),
    [(False, {(10, 100), (10, 200)}), (True, {(10, 100), (20, 100), (10, 200)})],
    ids=["tweets find locations", "locations find tweets too"],
)
def test_figure_35_by_area_codes_finds_the_last_known_location_of_a_silent_officer(
    world: World, both_ways: bool, streamed: set[tuple[int, int]]
) -> None:
    """A window over both streams misses u20, whose last move is 15 s old; the dataset still has its location."""
    world.police()
    pair = "SELECT o.oid AS officer, t.tid FROM Tweets t, OfficerLocations o"
    body = f"{pair} WHERE is_new(t) AND o.oid = oid AND t.area_code = o.area"
    world.dataset("OfficerLocations").upsert([{"oid": 10, "area": "A"}, {"oid": 20, "area": "B"}])
    world.create(body, "oid", start="beginning")
    world.subscribe(10)
    world.subscribe(20)
    tweet(world, 100, 0, 3, 9)
    runs = [pairs(world.of_run(world.run(at=10)))]
    world.now = 13
    world.dataset("OfficerLocations").upsert([{"oid": 20, "area": "A"}])
    runs.append(pairs(world.of_run(world.run(at=20))))
    world.now = 22
    world.dataset("OfficerLocations").upsert([{"oid": 10, "area": "A"}])
    tweet(world, 200, 0, 4, 28)
    runs.append(pairs(world.of_run(world.run(at=30))))
    assert runs == [{(10, 100)}, set(), {(10, 200), (20, 200)}]
    streams = WindowedStreams(10, both_ways=both_ways)
    steps = (
        streams.move(10, "A", 0), streams.move(20, "B", 0), streams.tweet(100, "A", 9), streams.move(20, "A", 13),
        streams.move(10, "A", 22), streams.tweet(200, "A", 28),
    )  # fmt: skip
    assert set().union(*steps) == streamed


def test_rooms_two_channels_deliver_who_came_and_nothing_when_all_move_elsewhere(world: World) -> None:
    """The reference project's test: 123 on A, 350 on B; users 1 and 3 are found, then nobody."""
    from quaestor.channels.datasets import Dataset
    from quaestor.tables.schema import Column, Schema, Type

    users = Dataset.create(
        world.catalogue, "Users", Schema((Column("id", Type.BIGINT), Column("room", Type.BIGINT)), ("id",))
    )
    for name, room in (("a", 123), ("b", 350)):
        world.create("SELECT u.id FROM Users u WHERE is_new(u) AND u.room = room", "room", name=name)
        world.subscribe(room, name=name)
    world.now = 5
    users.upsert([{"id": 1, "room": 123}, {"id": 2, "room": 222}, {"id": 3, "room": 350}])
    for name in "ab":
        world.run(name, at=10)
    users.upsert([{"id": number, "room": 222} for number in (1, 2, 3)])
    for name in "ab":
        world.run(name, at=20)
    assert sorted(record["id"] for name in "ab" for _, record in world.delivered(name)) == [1, 3]


@pytest.mark.parametrize("partitions", [1, 2, 4])
def test_a_record_stamped_exactly_at_a_run_is_delivered_once(world: World, partitions: int) -> None:
    """Strict bounds on both sides, as in the paper, lose this record: the mutant in this test does (T4)."""
    world.police(partitions)
    world.create(
        "SELECT t.tid, active_timestamp(t) AS at, current_channel_time(t) AS now FROM Tweets t WHERE is_new(t)"
    )
    world.create(
        "SELECT t.tid FROM Tweets t WHERE previous_channel_time(t) < active_timestamp(t) AND active_timestamp(t) < "
        "current_channel_time(t)",
        name="strict",
    )
    for name in ("c", "strict"):
        world.subscribe(name=name)
    for at in (10, 20, 30):
        tweet(world, at, 0, 0, at)
        for name in ("c", "strict"):
            world.run(name, at=at)
    records = [record for _, record in world.delivered()]
    assert [record["tid"] for record in records] == [10, 20, 30]
    assert all(record["at"] == record["now"] for record in records)
    assert world.delivered("strict") == []


class Approximation:
    """BAD-RQ: records have an ordinary timestamp, and each run looks back one period from its own time."""

    def __init__(self, period: float) -> None:
        self.period = period

    def run(self, stamped: dict[int, float], visible_at: dict[int, float], at: float) -> list[int]:
        return sorted(tid for tid, stamp in stamped.items() if visible_at[tid] <= at and at - self.period < stamp <= at)


@pytest.mark.parametrize(
    ("run_at", "delay", "missed", "repeated"),
    [
        ((10, 20.5, 30), {}, {102}, set()),
        ((10, 19.5, 30), {}, {196}, {98, 100}),
        ((10, 20, 30), {100: 10.3}, {100}, set()),
    ],
    ids=["a run is late", "a run is early", "a record is stamped early"],
)
def test_figures_18_and_19_the_approximation_misses_or_repeats_and_the_channel_does_not(
    world: World, run_at: Any, delay: dict[int, float], missed: set[int], repeated: set[int]
) -> None:
    stamped = {98: 9.8, 100: 9.95, 102: 10.2, 196: 19.6, 290: 29.0}
    visible_at = {**stamped, **delay}
    world.police()
    world.create("SELECT t.tid FROM Tweets t WHERE is_new(t)", start="beginning")
    world.subscribe()
    approximate: Counter[int] = Counter()
    events = sorted(
        [*((at, None) for at in run_at), *((at, tid) for tid, at in visible_at.items())],
        key=lambda e: (e[0], e[1] is None),
    )
    for at, tid in events:
        if tid is None:
            world.run(at=at)
            approximate.update(Approximation(10).run(stamped, visible_at, at))
        else:
            tweet(world, tid, 0, 0, at)
    assert Counter(record["tid"] for _, record in world.delivered()) == Counter(dict.fromkeys(stamped, 1))
    assert {tid for tid in stamped if not approximate[tid]} == missed
    assert {tid for tid in stamped if approximate[tid] > 1} == repeated


def test_an_officer_who_moves_during_a_run_still_has_the_location_of_the_run(world: World) -> None:
    """The run reads the version of its instant. A bound over the newest versions would lose the pair for good (T6)."""
    world.police()
    world.create(BODIES["29"], "oid", start="beginning")
    world.subscribe(10)
    move(world, 10, 0, 0, 1)
    tweet(world, 100, 0, 3, 9)
    relation = world.runner._relations.records

    def during_the_run(*arguments: Any) -> Any:
        move(world, 10, 90, 90, world.now)
        return relation(*arguments)

    world.runner._relations.records = during_the_run  # type: ignore[method-assign]
    assert pairs(world.of_run(world.run(at=10))) == {(10, 100)}
    newest = {row["oid"]: row["location"]["x"] for row in world.dataset("OfficerLocations").records()}
    assert newest == {10: 90}
    world.runner._relations.records = relation  # type: ignore[method-assign]
    assert world.of_run(world.run(at=20)) == []


def test_a_bound_over_the_newest_versions_loses_an_officer_who_moves_during_a_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paper's rule as a mutant: a filter by the current time over the newest versions delivers a pair in no run (T6)."""
    state = LatestVersions.at

    def filtered(latest: LatestVersions, snapshot: Any, upto: int) -> Any:
        newest = latest._table.snapshot()
        rows = state(latest, newest, newest.instant)
        return rows.filter(pc.less_equal(rows.column(TS).cast(pa.int64()), upto))

    monkeypatch.setattr(LatestVersions, "at", filtered)
    world.police()
    world.create(BODIES["29"], "oid", start="beginning")
    world.subscribe(10)
    move(world, 10, 0, 0, 1)
    tweet(world, 100, 0, 3, 9)
    assert pairs(world.of_run(world.run(at=9.5))) == {(10, 100)}, "without a move the mutant is right"
    tweet(world, 200, 0, 3, 9.7)
    relation = world.runner._relations.records

    def during_the_run(*arguments: Any) -> Any:
        move(world, 10, 90, 90, world.now)
        return relation(*arguments)

    world.runner._relations.records = during_the_run  # type: ignore[method-assign]
    assert world.of_run(world.run(at=10)) == []
    world.runner._relations.records = relation  # type: ignore[method-assign]
    move(world, 10, 0, 0, 19)
    assert world.of_run(world.run(at=20)) == []
