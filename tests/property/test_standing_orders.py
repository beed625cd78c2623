"""Subscriptions and writes in every order of events: a subscriber's rows always equal the database's result in the end.

Stages, cells and app processes are the real ones; tests/standing_orders drives them by hand. Free to come in any order
are: a write appears in the database, and its image in its write pipeline; a cell takes it, or the tick behind it, or
the announcement of a stage; a stage takes a subscription, a result that was read, a finding of a cell; the database
answers a read; the app takes a step; a subscription ends and another begins; a cell or a stage dies and is replaced;
slack is used up and leads to a renewal.

Every order that causality allows is run, with these exceptions.
Orders that differ in nothing that any part could see (every_order.py) are run once.
An image is appended at once after its write, because each delay of it is one of the cells that take it.
A renewal is read at once, because it names the version it wants.
An app takes its messages at once unless it may still leave, because no other part waits for that.
Of the messages of two query partitions an app takes the first one's first.

After each step of an app, its list is the result as of some moment. The moment never goes back, and is never older than
the version that was reported as reached. Each event changed something and fitted the list. In the end the list is the
database's answer, and every part knows that.

A story may begin when its first subscription is settled, where the orders before that are another story's. The number
of orders stands beside each story: it changes with the protocol, and an author who changes the protocol should see
that. There are 2,494 orders, of up to 31 steps; the longer stories have some tens of thousands. The longer stories
leave out some cases that would take hours:

- deaths and ends before the first subscription is settled, except one cell, and one ending of a query without a window
- deaths of both of two cells, and of a cell before its stage
- a second write where the stage of a window dies

tests/oracle/test_standing_oracle.py shows that the small database answers as mongod does. The test was seen to fail
with each of these parts of the protocol broken:

- replay, and recognition of repetitions
- the comparison of versions: of results, of records, of snapshots
- the cells' notice that they began anew, and tokens of announcements
- keeping messages that come during a read
- the condition that all cells match before a result counts as current
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from quaestor.invalidation.grid.fair_queue import FairQueue
from quaestor.model import GridShape, Operation, Query
from tests.standing_orders.database import NAMESPACE, Change, Document
from tests.standing_orders.every_order import Orders
from tests.standing_orders.world import Scenario, World

pytestmark = pytest.mark.anyio

START: dict[int, Document] = {
    1: {"_id": 1, "a": 1, "b": 1}, 2: {"_id": 2, "a": 1, "b": 2}, 3: {"_id": 3, "a": 0, "b": 3},
}  # fmt: skip
ENTERS: Change = (4, {"a": 1, "b": 0})
MOVES_OUT: Change = (4, {"a": 0, "b": 0})
GOES: Change = (2, None)
REORDERS: Change = (1, {"a": 1, "b": 9})
COMES_FIRST: Change = (3, {"a": 1, "b": 0})
LEAVES_AGAIN: Change = (3, None)
IN_AND_OUT = (ENTERS, MOVES_OUT, GOES)
UP_AND_DOWN = (REORDERS, COMES_FIRST, LEAVES_AGAIN)
BOTH_SIDES = (ENTERS, GOES)
"""Of two write partitions, one write in each."""

FIND = Query(namespace=NAMESPACE, operation=Operation.FIND, filter={"a": 1})
WINDOW = replace(FIND, sort=(("b", 1),), limit=1)
WIDER = replace(WINDOW, limit=2)
COUNT = replace(FIND, operation=Operation.COUNT)
QUERIES = {"find": FIND, "window": WINDOW, "wider": WIDER, "count": COUNT}
TWO_WRITE = GridShape(query_partitions=1, write_partitions=2)
TWO_QUERY = GridShape(query_partitions=2, write_partitions=1)


def scenario(query: str, changes: tuple[Change, ...] = IN_AND_OUT, **more: Any) -> Scenario:
    return Scenario(start=START, changes=changes, queries=[QUERIES[name] for name in query.split("+")], **more)


def set_clock(patched: pytest.MonkeyPatch, clock: Callable[[], float]) -> None:
    """By which parts tell how long something takes."""
    patched.setattr(time, "monotonic", clock)
    patched.setitem(FairQueue.turns.__kwdefaults__ or {}, "clock", clock)


def run(case: Scenario) -> tuple[int, int]:
    """Run every order of the scenario; return the number of orders,
    and the most results that a subscriber saw in a row.

    Meanwhile the machine's clock hardly moves. A cell leaves work beyond a tenth of a second for its next step.
    A reader that has not read for a second suspects a gap. On a busy machine these would be other stories.
    """
    truth, orders, seen, moments = case.truth(), Orders(), 0, itertools.count()
    with pytest.MonkeyPatch.context() as patched:
        set_clock(patched, lambda: next(moments) * 1e-9)
        try:
            for world in orders.explore(lambda: World(case, truth)):
                world.settle()
                seen = max([seen, *(len(follower.shown) for followers in world.followers for follower in followers)])
        except BaseException:
            print("the order that led there:", *orders.path, sep="\n  ")
            raise
    print(f"{orders.complete} orders of up to {orders.longest} steps, {orders.same} given up as the same as another")
    return orders.complete, seen


EVERYWHERE = {
    "find": (scenario("find"), 28),
    "find, up and down": (scenario("find", UP_AND_DOWN), 28),
    "count": (scenario("count"), 28),
    "count by before-images": (scenario("count", images=True), 28),
    "window": (scenario("window"), 186),
    "window, with slack": (scenario("window", slack=1), 28),
    "window, up and down": (scenario("window", UP_AND_DOWN[:2]), 92),
    "everything repeated": (scenario("find", IN_AND_OUT[:1], again=True), 130),
    "count by before-images, everything repeated": (scenario("count", IN_AND_OUT[:1], again=True, images=True), 130),
    "count by before-images, one is missing": (scenario("count", IN_AND_OUT[:2], images=True, unseen=1), 27),
    "repeated in lumps": (scenario("find", IN_AND_OUT[:1], again=True, lumps=1), 336),
    "two write partitions": (scenario("find", shape=TWO_WRITE), 78),
    "count, two write partitions": (scenario("count", shape=TWO_WRITE), 78),
    "window, two write partitions": (scenario("window", BOTH_SIDES, shape=TWO_WRITE), 26),
    "two query partitions": (scenario("find+count", IN_AND_OUT[:1], shape=TWO_QUERY), 153),
    "two processes": (scenario("find", IN_AND_OUT[:2], apps=2), 87),
    "ends and begins": (scenario("find", BOTH_SIDES, leaves=1, settled=True), 400),
    "a cell dies": (scenario("find", IN_AND_OUT[:2], cell_deaths=1, settled=True), 136),
    "the stage dies": (scenario("find", IN_AND_OUT[:1], stage_deaths=1, settled=True), 395),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", EVERYWHERE)
async def test_subscribers_receive_the_database_s_result_in_every_order(name: str) -> None:
    """In every order each subscriber's list equals the database's result: nothing twice, nothing missed,
    never backwards.
    """
    case, orders = EVERYWHERE[name]
    ran, seen = run(case)
    assert ran == orders
    assert seen > 1, "nothing happened"


async def test_a_busy_machine_tells_the_same_story(monkeypatch: pytest.MonkeyPatch) -> None:
    """A story does not depend on how long its steps take here."""
    set_clock(monkeypatch, itertools.count(step=10.0).__next__)
    case, orders = EVERYWHERE["count"]
    assert run(case)[0] == orders


LONGER = {
    "window, everything repeated": scenario("window", IN_AND_OUT[:2], again=True),
    "window, two processes": scenario("window", IN_AND_OUT[:2], apps=2),
    "window, two write partitions": scenario("window", shape=TWO_WRITE),
    "window, up and down": scenario("window", UP_AND_DOWN),
    "wider window": scenario("wider", UP_AND_DOWN),
    "wider window, two write partitions": scenario("wider", UP_AND_DOWN, shape=TWO_WRITE),
    "two queries in two partitions": scenario("find+count", IN_AND_OUT[:2], shape=TWO_QUERY),
    "ends and begins": scenario("find", BOTH_SIDES, leaves=1),
    "window, ends and begins": scenario("window", IN_AND_OUT[:2], leaves=1, settled=True),
    "a cell dies": scenario("find", IN_AND_OUT[:2], cell_deaths=1),
    "window, a cell dies": scenario("window", IN_AND_OUT[:2], cell_deaths=1),
    "count, a cell dies": scenario("count", BOTH_SIDES, cell_deaths=1),
    "one of two cells dies": scenario("find", BOTH_SIDES, shape=TWO_WRITE, cell_deaths=1, settled=True),
    "the stage dies": scenario("find", IN_AND_OUT[:2], stage_deaths=1, settled=True),
    "everything repeated": scenario("find", BOTH_SIDES, again=True),
    "repeated writes of one record": scenario("find", again=True),
    "window, the stage dies": scenario("window", IN_AND_OUT[:1], stage_deaths=1, settled=True),
    "the stage and a cell die": scenario("find", IN_AND_OUT[:1], stage_deaths=1, cell_deaths=1, settled=True),
}


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", LONGER)
async def test_in_every_order_of_longer_stories(name: str) -> None:
    ran, seen = run(LONGER[name])
    assert ran > 200
    assert seen > 1
