"""Declared orders: used while they hold, checked before each run, and given up with an alarm before anything is lost."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from sqlglot import exp

from quaestor.continuous import declared_orders
from quaestor.continuous.declared_orders import DeclaredOrder, DeclaredOrders, order_of
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.rules.orders import KnownOrder
from quaestor.continuous.runs.execution import Executions
from quaestor.continuous.runs.run import Run, run
from quaestor.continuous.sql_engine import SqlEngine
from quaestor.errors import ConfigurationError
from quaestor.tables.schema import Type
from tests.continuous.runs.world import World

REPLIED = "SELECT m.id, r.id AS reply FROM messages m JOIN replies r ON r.message = m.id WHERE r.shop = {}"
COUNTED = """SELECT m.id, COUNT(*) AS reply FROM messages m JOIN replies r ON r.message = m.id
    WHERE r.shop = {} GROUP BY m.id"""
ORDER = KnownOrder("messages", "id", "replies", "message")


class Ordered(World):
    """World with messages, replies and the declared order between them.

    alarms: reports of broken orders.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.table("messages", id=Type.BIGINT)
        self.table("replies", id=Type.BIGINT, message=Type.BIGINT, shop=Type.BIGINT)
        self.executor = DuckDbExecutor(threads=1)
        self.alarms: list[str] = []
        self.compiler = SqlEngine(self.catalogue, self.executor)
        self.begin()
        self.compiler.orders.declare(ORDER)

    def begin(self) -> None:
        """Begin as a new process."""
        self.compiler = SqlEngine(self.catalogue, self.executor)
        self.compiler.orders.report = self.alarms.append
        self.executions = Executions(self.compiler, self.catalogue)

    def stand(self, name: str, shop: int = 1, text: str = REPLIED) -> None:
        self.install(name, text.format(shop))

    def message(self, number: int) -> None:
        self.add("messages", {"id": number})

    def reply(self, number: int, message: int, shop: int = 1) -> None:
        self.add("replies", {"id": number, "message": message, "shop": shop})

    def pairs(self, name: str) -> list[tuple[int, int]]:
        return sorted((row["id"], row["reply"]) for row in self.results(name))

    def go(self, *names: str) -> None:
        """Run queries, several as one plan."""
        self.advance(minutes=1)
        queries = [self.installed.get(name) for name in names]
        for group in self.executions.groups(queries):
            if len(group) == 1:
                self.executions.run(group[0])
            else:
                assert all(isinstance(done, Run) for done in self.executions.run_together(group).values())


@pytest.fixture
def ordered(tmp_path: Path) -> Ordered:
    return Ordered(tmp_path)


def test_a_message_after_its_reply_breaks_the_order_and_no_pair_is_lost(ordered: Ordered) -> None:
    """The run that meets it uses the exact rule already. Another process finds the order broken."""
    ordered.stand("replied")
    prepared = ordered.compiler.prepare(REPLIED.format(1))
    assert prepared.compiled.incremental.sql().count(":tau") == 1
    ordered.message(1)
    ordered.go("replied")
    ordered.reply(10, 1)
    ordered.reply(20, 2)
    ordered.go("replied")
    assert ordered.alarms == []
    ordered.message(2)
    ordered.go("replied")
    assert ordered.pairs("replied") == [(1, 10), (2, 20)]
    assert len(ordered.alarms) == 1
    assert "messages with id = 2 came at" in ordered.alarms[0]
    ordered.begin()
    ordered.reply(30, 3)
    ordered.go("replied")
    ordered.message(3)
    ordered.go("replied")
    assert ordered.pairs("replied") == [(1, 10), (2, 20), (3, 30)]
    assert len(ordered.alarms) == 1
    assert ordered.compiler.prepare(REPLIED.format(1)).compiled.orders == ()


def test_a_group_changes_with_new_replies_only(ordered: Ordered) -> None:
    """While the order holds, the group of a new message is not looked for: its replies come later."""
    with_order = ordered.compiler.prepare(COUNTED.format(1)).compiled
    ordered.compiler.orders.drop(ORDER)
    without = ordered.compiler.prepare(COUNTED.format(1)).compiled
    assert (with_order.orders, without.orders) == ((ORDER,), ())
    assert (str(ORDER) in with_order.explanation, str(ORDER) in without.explanation) == (True, False)
    (exists,) = with_order.incremental.find_all(exp.Exists)
    (changes,) = exists.find_all(exp.Subquery)
    assert "$tau < r_then1.ts" in changes.sql("duckdb")
    assert "GREATEST" not in with_order.incremental.sql("duckdb")
    assert "GREATEST" in without.incremental.sql("duckdb")


def test_an_unchecked_order_loses_results(ordered: Ordered, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant that never looks for a counterexample loses the pair."""
    monkeypatch.setattr(DeclaredOrders, "_counterexample", lambda *_: "")
    ordered.stand("replied")
    ordered.reply(20, 2)
    ordered.go("replied")
    ordered.message(2)
    ordered.go("replied")
    assert ordered.pairs("replied") == []


@pytest.mark.parametrize("text", [REPLIED, COUNTED])
def test_random_histories_give_the_rows_of_the_exact_rule(ordered: Ordered, text: str) -> None:
    """Runs alone, runs as one plan, new processes, and orders that break at some time and are declared anew."""
    random = Random(5)
    names = [f"shop_{shop}" for shop in range(3)]
    for shop, name in enumerate(names):
        ordered.stand(name, shop, text)
    plain = SqlEngine(ordered.catalogue, ordered.executor)
    for shop, name in enumerate(names):
        ordered.stand(f"exact_{name}", shop, text)
    for step in range(16):
        for _ in range(random.randrange(1, 4)):
            ordered.message(random.randrange(5))
            ordered.reply(step, random.randrange(5) if step > 4 else -1, random.randrange(3))
        ordered.go(*random.sample(names, random.randrange(1, 4)))
        if random.random() < 0.2:
            ordered.begin()
        if random.random() < 0.3:
            ordered.compiler.orders.declare(ORDER)
            ordered.begin()
    ordered.compiler.orders.drop(ORDER)
    for name in names:
        ordered.go(name)
        query = ordered.installed.get(f"exact_{name}")
        run(query, plain.prepare(query.text), ordered.catalogue)
        assert ordered.pairs(name) == ordered.pairs(f"exact_{name}")
    assert sum(len(ordered.pairs(name)) for name in names) > 4
    assert len(ordered.alarms) > 1


def test_rows_before_the_declaration_are_checked(tmp_path: Path) -> None:
    """The first run reads all rows of both tables."""
    ordered = Ordered(tmp_path)
    ordered.compiler.orders.drop(ORDER)
    ordered.reply(1, 1)
    ordered.message(1)
    ordered.compiler.orders.declare(ORDER)
    ordered.stand("replied")
    ordered.go("replied")
    assert (ordered.pairs("replied"), len(ordered.alarms)) == ([(1, 1)], 1)


def test_only_new_messages_are_looked_up(ordered: Ordered, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each instant is looked at once, whichever query runs. A new process goes on from a look of the last hour."""
    looks: list[tuple[int, int]] = []
    counterexample = DeclaredOrders._counterexample

    def noted(self: DeclaredOrders, order: KnownOrder, after: int, upto: int, snapshots: object) -> str:
        looks.append((after, upto))
        return counterexample(self, order, after, upto, snapshots)  # type: ignore[arg-type]

    monkeypatch.setattr(DeclaredOrders, "_counterexample", noted)
    for shop in range(2):
        ordered.stand(f"shop_{shop}", shop)
    for number in range(3):
        ordered.message(number)
        ordered.go("shop_0", "shop_1")
        ordered.executions.run(ordered.installed.get("shop_0"))
    assert looks[0][0] == -1
    assert all(after == before for (_, before), (after, _) in pairwise(looks))
    ordered.begin()
    first = looks[0][1]
    ordered.go("shop_0")
    assert looks[-1][0] == first


def test_a_group_checks_an_order_once_for_all_its_queries(ordered: Ordered, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its declaration is read once in a run, whatever the number of queries."""
    names = [f"shop_{shop}" for shop in range(20)]
    for shop, name in enumerate(names):
        ordered.stand(name, shop)
    ordered.go(*names)
    decode, decoded = declared_orders._decoded, []

    def noted(order: KnownOrder, note: str) -> DeclaredOrder:
        decoded.append(order)
        return decode(order, note)

    monkeypatch.setattr(declared_orders, "_decoded", noted)
    ordered.reply(1, 1, 7)
    ordered.go(*names)
    assert decoded == [ORDER]


def test_a_group_gives_a_broken_order_up_together(ordered: Ordered) -> None:
    """The run that meets the counterexample loses no pair of any query; there is one alarm."""
    names = [f"shop_{shop}" for shop in range(4)]
    for shop, name in enumerate(names):
        ordered.stand(name, shop)
    ordered.go(*names)
    for shop in range(4):
        ordered.reply(shop, 2, shop)
    ordered.go(*names)
    ordered.message(2)
    ordered.go(*names)
    assert [ordered.pairs(name) for name in names] == [[(2, shop)] for shop in range(4)]
    assert len(ordered.alarms) == 1


def test_a_group_reads_new_rows_only(ordered: Ordered) -> None:
    """Its join finds old messages in the copy of the engine, as a query alone does."""
    ordered.add("messages", *({"id": number} for number in range(100)))
    names = ["shop_0", "shop_1"]
    for shop, name in enumerate(names):
        ordered.stand(name, shop)
    ordered.go(*names)
    ordered.go(*names)
    ordered.reply(1, 7, 1)
    ordered.advance(minutes=1)
    outcomes = ordered.executions.run_together([ordered.installed.get(name) for name in names])
    assert sum(done.read.rows for done in outcomes.values() if isinstance(done, Run)) == 1
    assert ordered.pairs("shop_1") == [(7, 1)]


@pytest.mark.parametrize(
    "columns", [("messages.id", "replies.nothing"), ("nothing.id", "replies.id"), ("id", "replies.id")]
)
def test_unknown_columns_are_refused(ordered: Ordered, columns: tuple[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=r"no column|no table|no columns"):
        ordered.compiler.orders.declare(order_of(*columns))
