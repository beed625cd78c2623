"""Balancing of brokers: which groups move, and that no result is lost or repeated by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.channels.brokers.balancing import GroupLoad, load_at, moves, placement
from quaestor.channels.datasets import Dataset
from quaestor.channels.runs.run import Runner
from quaestor.channels.runs.stored_pages import StoredPages
from quaestor.channels.statements import StatementError
from quaestor.channels.statements.model import Kind
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from tests.channels.statements_world import StatementsWorld

BROKERS = ("a", "b", "c")
loads = st.lists(st.tuples(st.sampled_from((*BROKERS, "draining")), st.integers(0, 1_000)), max_size=12).map(
    lambda drawn: [GroupLoad(group=f"g{i}", broker=broker, load=load) for i, (broker, load) in enumerate(drawn)]
)


def after(before: list[GroupLoad], moved: dict[str, str]) -> list[GroupLoad]:
    return [GroupLoad(group=g.group, broker=moved.get(g.group, g.broker), load=g.load) for g in before]


def spread(entries: list[GroupLoad]) -> int:
    sums = [load_at(entries, broker) for broker in BROKERS]
    return max(sums) - min(sums)


@given(loads)
def test_moves_never_make_the_spread_larger_and_no_single_move_is_left_that_helps(before: list[GroupLoad]) -> None:
    """Groups at other brokers stay, groups without load stay, and a second balance changes nothing."""
    moved = moves(before, BROKERS)
    balanced = after(before, moved)
    assert spread(balanced) <= spread(before)
    origin = {entry.group: entry for entry in before}
    assert all(origin[group].broker in BROKERS and origin[group].load for group in moved)
    assert set(moved.values()) <= set(BROKERS)
    assert moves(balanced, BROKERS) == {}
    mean = sum(load_at(balanced, broker) for broker in BROKERS) / 3
    most = max(BROKERS, key=lambda broker: (load_at(balanced, broker), broker))
    if spread(balanced) > 0.1 * mean:
        assert all(g.load == 0 or g.load >= spread(balanced) for g in balanced if g.broker == most)


def test_equal_loads_and_few_brokers_need_no_moves() -> None:
    equal = [GroupLoad(group=name, broker=name, load=100) for name in BROKERS]
    assert moves(equal, BROKERS) == {}
    assert moves(equal, ["a"]) == moves(equal, []) == moves([], BROKERS) == {}
    assert moves([GroupLoad(group="g", broker="a", load=100)], ("a", "b")) == {}, "a group is never divided"


@given(st.lists(st.integers(0, 5), max_size=60), st.dictionaries(st.sampled_from(BROKERS), st.integers(0, 40)))
def test_new_subscriptions_fill_brokers_and_equal_parameters_stay_together(
    choices: list[int], present: dict[str, int]
) -> None:
    """No broker is filled beyond a tenth over the mean. Values leave their first broker only if it has no room."""
    counts = {broker: present.get(broker, 0) for broker in BROKERS}
    alone = {choice: placement(BROKERS, {}, [choice]) for choice in range(6)}
    for choice in choices:
        broker = placement(BROKERS, counts, [choice])
        most = 1.1 * (sum(counts.values()) + 1) / 3
        assert counts[broker] < most, "it had room"
        assert broker == alone[choice] or counts[alone[choice]] >= most, "the first broker of these values has no room"
        counts[broker] += 1
    assert placement(["a"], counts, [1]) == "a"


def test_a_further_broker_takes_subscriptions_from_all_others_and_moves_none_between_them() -> None:
    """Of 300 values, each stays at its broker of two, or goes to the third one, about a third of them."""
    two = {value: placement(["a", "b"], {}, [value]) for value in range(300)}
    three = {value: placement(BROKERS, {}, [value]) for value in range(300)}
    moved = [value for value in two if two[value] != three[value]]
    assert {three[value] for value in moved} == {"c"}
    assert {two[value] for value in moved} == {"a", "b"}
    assert 60 < len(moved) < 140


class Balanced(StatementsWorld):
    """Channel `Local` with two brokers, whose results a test reads."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.police()
        self.tid = 0
        self.runner = Runner(self.channels.parts.catalogue, DuckDbExecutor(threads=1))
        self.run("CREATE BROKER second AT 'https://93.184.216.34/second'")

    def tweets(self, *areas: str, text: str = "a") -> None:
        """Write a tweet for each area, and run the channel."""
        parts = self.channels.parts
        rows = [{"tid": self.tid + i, "area_code": area, "text": text} for i, area in enumerate(areas)]
        Dataset.open(parts.catalogue, "Tweets").insert(rows)
        self.tid += len(areas)
        self.runner.run(parts.compiled(parts.definitions.get(Kind.CHANNEL, "Local")), 1)

    def received(self, broker: str) -> list[tuple[int, str]]:
        """Return (tweet, subscription) of each result at a broker."""
        pages = StoredPages(self.channels.parts.catalogue).after("Local", broker, 0, 10_000)
        return [
            (json.loads(row.record)["tid"], mine) for page in pages for row in page.rows for mine in row.subscriptions
        ]

    def subscribe(self, area: str, broker: str = "station") -> str:
        ((mine,),) = self.rows(f"SUBSCRIBE TO Local('{area}') ON {broker}")
        return str(mine)


def balanced(world: StatementsWorld, text: str) -> dict[str, Any]:
    """Execute BALANCE; return the loads before and after by broker."""
    return {name: (before, later) for name, before, later in world.rows(text)}


@pytest.mark.parametrize("grouping", ["", "UNGROUPED"])
def test_groups_move_at_a_run_boundary_and_each_result_is_at_one_broker(tmp_path: Path, grouping: str) -> None:
    """The loads are bytes of results times members. After the move the loads of the runs are as announced."""
    world = Balanced(tmp_path)
    world.run(
        f"""DROP CHANNEL Local; CREATE CONTINUOUS CHANNEL Local(area string) PERIOD 10 SECONDS FROM BEGINNING {grouping}
        {{ SELECT t.tid, t.text FROM Tweets t WHERE is_new(t) AND t.area_code = area }}"""
    )
    areas = {world.subscribe(area): area for area in "AABBBBC"}
    areas[world.subscribe("D", "second")] = "D"
    world.tweets("A", "B", "C")
    record = len('{"tid":1,"text":"a"}')
    before = balanced(world, "BALANCE CHANNEL Local")
    assert before == {"station": (7 * record, 3 * record), "second": (0, 4 * record)}
    world.tweets("A", "B", "C")
    delivered = world.received("station") + world.received("second")
    assert len(delivered) == len(set(delivered)) == 2 * 7
    assert sorted((tid % 3, mine) for tid, mine in delivered if tid >= 3) == sorted(
        ("ABC".index(area), mine) for mine, area in areas.items() if area != "D"
    )
    assert {areas[mine] for tid, mine in world.received("second")} == {"B"}
    assert {areas[mine] for tid, mine in world.received("station") if tid >= 3} == {"A", "C"}
    assert balanced(world, "BALANCE CHANNEL Local")["second"] == (8 * record, 8 * record), (
        "a moved group keeps its load"
    )


def test_brokers_that_drain_or_are_down_take_no_groups(tmp_path: Path) -> None:
    """Only the owner of a channel balances it, and only among brokers that are there."""
    world = Balanced(tmp_path)
    world.subscribe("A")
    world.subscribe("B")
    world.tweets("A", "B")
    world.channels.brokers.note_down("second", 1)
    assert balanced(world, "BALANCE CHANNEL Local AMONG station, second")["second"] == (0, 0)
    world.channels.brokers.note_down("second", 0)
    world.run("PAUSE BROKER second")
    assert balanced(world, "BALANCE CHANNEL Local AMONG station, second")["second"] == (0, 0)
    world.run("RESUME BROKER second")
    assert balanced(world, "BALANCE CHANNEL Local AMONG station, second")["second"][1] > 0
    with pytest.raises(StatementError, match="channel 'Local' belongs to another user"):
        world.run("BALANCE CHANNEL Local", user="ben")
    with pytest.raises(StatementError, match="there is no broker 'third'"):
        world.run("BALANCE CHANNEL Local AMONG station, third")


def test_subscriptions_move_by_a_statement_and_a_user_moves_his_own(tmp_path: Path) -> None:
    """Of one channel or of all; the broker that takes them must be there and take subscriptions."""
    world = Balanced(tmp_path)
    world.subscribe("A")
    world.run("SUBSCRIBE TO Local('B') ON station", user="ann")
    (answer,) = world.run("CHANGE SUBSCRIPTIONS ON station TO second", user="ann")
    assert answer.text == "moved 1 subscriptions from station to second, from the next run on"
    assert world.texts("CHANGE SUBSCRIPTIONS ON Station OF local TO second")[0].startswith("moved 1 ")
    assert [row[2] for row in world.rows("SHOW SUBSCRIPTIONS")] == ["second", "second"]
    world.run("PAUSE BROKER station")
    with pytest.raises(StatementError, match="broker 'station' takes no new subscriptions"):
        world.run("CHANGE SUBSCRIPTIONS ON second TO station")
    with pytest.raises(StatementError, match="there is no broker 'third'"):
        world.run("CHANGE SUBSCRIPTIONS ON second TO third")


def test_a_subscription_among_brokers_goes_to_one_that_takes_it(tmp_path: Path) -> None:
    """Equal values go to one broker while it has room. Brokers that drain or are down take none. The answer names the broker."""
    world = Balanced(tmp_path)
    text = "SUBSCRIBE TO Local('{}') AMONG station, second"
    homes = {area: placement(["station", "second"], {}, [area]) for area in "ABCDEFGH"}
    area = next(area for area, home in homes.items() if home == "second")
    ((mine, broker),) = world.rows(text.format(area))
    assert broker == "second"
    world.tweets(area)
    assert world.received("second") == [(0, mine)]
    assert [world.rows(text.format(area))[0][1] for _ in range(2)] == ["second", "station"], (
        "two are the share of three"
    )
    world.channels.brokers.note_down("second", 1)
    assert [world.rows(text.format(area))[0][1] for _ in range(3)] == ["station"] * 3
    world.channels.brokers.note_down("second", 0)
    world.run("PAUSE BROKER second; PAUSE BROKER station")
    with pytest.raises(StatementError, match="none of the brokers station, second takes new subscriptions"):
        world.run(text.format(area))
    with pytest.raises(StatementError, match="there is no broker 'third'"):
        world.run("SUBSCRIBE TO Local('A') AMONG station, third")
