"""Queue of runs: order by priority and deadline, and places of slow runs."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from quaestor.channels.run_queue import Cost, RunQueue, Turn
from quaestor.channels.statements.model import Priority

pytestmark = pytest.mark.anyio
LONG_S = 3_600.0


class Runs:
    """Runs that are held until a test ends them. begun: their names, in the order in which they began."""

    def __init__(self, at_once: int) -> None:
        self.queue = RunQueue(at_once)
        self.begun: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def add(
        self, name: str, priority: Priority = Priority.NORMAL, deadline: int = 0, cost: Cost | None = None
    ) -> None:
        """Add a run, which begins if it has a place."""
        self._ends[name] = asyncio.Event()
        turn = Turn(priority, deadline)
        self._tasks[name] = asyncio.create_task(self._run(name, turn, cost or Cost(LONG_S)))
        await settled()

    async def end(self, name: str) -> None:
        """End a run, and let the next begin."""
        self._ends[name].set()
        await self._tasks[name]
        await settled()

    async def cancel(self, name: str) -> None:
        """Cancel a run that waits or is held."""
        self._tasks[name].cancel()
        await asyncio.wait([self._tasks[name]])
        await settled()

    async def _run(self, name: str, turn: Turn, cost: Cost) -> None:
        async with self.queue.place(turn, cost):
            self.begun.append(name)
            await self._ends[name].wait()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def slow() -> Cost:
    """Cost of a channel whose runs take nearly its whole period."""
    cost = Cost(LONG_S)
    cost.note(0.9 * LONG_S)
    return cost


async def test_runs_begin_by_priority_and_then_by_deadline() -> None:
    """An earlier deadline does not outweigh a higher priority."""
    runs = Runs(1)
    await runs.add("first")
    await runs.add("late", deadline=9)
    await runs.add("early", deadline=5)
    await runs.add("urgent", Priority.HIGH, deadline=99)
    assert runs.begun == ["first"]
    for name in ("first", "urgent", "early", "late"):
        await runs.end(name)
    assert runs.begun == ["first", "urgent", "early", "late"]


async def test_slow_channels_and_those_of_low_priority_leave_places_to_the_others() -> None:
    """Four places, and two for slow runs: a third slow one waits, another one begins."""
    runs = Runs(4)
    for name in ("slow 1", "slow 2", "slow 3"):
        await runs.add(name, cost=slow())
    await runs.add("low", Priority.LOW)
    assert runs.begun == ["slow 1", "slow 2"]
    await runs.add("quick")
    await runs.add("slow, but urgent", Priority.HIGH, cost=slow())
    assert runs.begun[2:] == ["quick", "slow, but urgent"]
    await runs.end("slow 1")
    assert runs.begun[4:] == ["slow 3"]
    await runs.end("slow 2")
    assert runs.begun[5:] == ["low"]


async def test_a_run_that_proves_slow_gives_its_place_to_the_next() -> None:
    """Nothing was known of the channel. Its place among the slow ones is given back at its end."""
    runs = Runs(1)
    await runs.add("unknown", cost=Cost(0.02))
    await runs.add("next")
    assert runs.begun == ["unknown"]
    async with asyncio.timeout(30):
        while runs.begun != ["unknown", "next"]:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    await runs.add("slow", cost=slow())
    assert runs.begun == ["unknown", "next"]
    await runs.end("unknown")
    assert runs.begun == ["unknown", "next", "slow"]


async def test_a_cancelled_run_takes_no_place() -> None:
    """Whether it waited, or had just been given a place."""
    runs = Runs(1)
    await runs.add("first")
    await runs.add("waits")
    await runs.add("next")
    await runs.cancel("waits")
    assert runs.queue.waiting == 1
    await runs.cancel("first")
    assert runs.begun == ["first", "next"]
    await runs.end("next")
    await runs.add("last")
    assert runs.begun == ["first", "next", "last"]


async def test_a_run_cancelled_as_its_turn_comes_passes_the_place_on() -> None:
    """The place was given, and the run had not yet gone on."""
    queue = RunQueue(1)
    begun: list[str] = []

    async def run(name: str) -> None:
        async with queue.place(Turn(Priority.NORMAL, 0), Cost(LONG_S)):
            begun.append(name)

    holder = queue.place(Turn(Priority.NORMAL, 0), Cost(LONG_S))
    await holder.__aenter__()
    given, last = asyncio.create_task(run("given")), asyncio.create_task(run("last"))
    await settled()
    await holder.__aexit__(None, None, None)
    given.cancel()
    await asyncio.wait([given, last])
    assert begun == ["last"]


@pytest.mark.parametrize("seed", range(20))
async def test_no_more_runs_than_places_at_any_time(seed: int) -> None:
    """Random runs: each of them begins once, and places come back whatever ends a run."""
    random, most = Random(seed), 3
    queue = RunQueue(most)
    running: set[int] = set()
    begun: list[int] = []

    async def run(number: int, cost: Cost) -> None:
        async with queue.place(Turn(random.choice(list(Priority)), random.randrange(9)), cost):
            begun.append(number)
            running.add(number)
            assert len(running) <= most + 1
            for _ in range(random.randrange(4)):
                await asyncio.sleep(0)
            running.discard(number)

    tasks = [asyncio.create_task(run(number, random.choice([slow, lambda: Cost(LONG_S)])())) for number in range(60)]
    await asyncio.wait(tasks)
    assert sorted(begun) == list(range(60))
    assert not any(task.exception() for task in tasks)


def test_the_cost_of_a_channel_follows_its_runs() -> None:
    """One slow run makes a channel slow; quick ones make it quick again."""
    cost = Cost(10.0)
    assert not cost.is_slow
    cost.note(9.0)
    assert cost.is_slow
    for _ in range(3):
        cost.note(1.0)
    assert not cost.is_slow
    assert Cost(0).patience_s == 30.0
