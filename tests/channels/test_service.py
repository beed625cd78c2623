"""Service of channels with an injected clock: periods, slow channels, failures, overruns and deliveries."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from quaestor.channels.hosting import executors_of, hosted
from quaestor.channels.rewriting.definition import ChannelDefinition, Parameter
from quaestor.channels.service import ChannelParts, ChannelService
from quaestor.channels.statements.model import Priority
from quaestor.observability.telemetry import Telemetry
from quaestor.settings.continuous import ContinuousSettings
from tests.channels.world import World

pytestmark = pytest.mark.anyio
LOCAL = "SELECT t.tid FROM Tweets t WHERE is_new(t) AND t.area_code = area"


class Served(World):
    """World with a service.

    deliveries: (channel, push) of each.
    news: channel of each delivery that no test has taken yet.
    """

    def __init__(self, folder: Path, **fields: Any) -> None:
        super().__init__(folder)
        self.police()
        self.definitions: dict[str, ChannelDefinition] = {}
        self.deliveries: list[tuple[str, bool]] = []
        self.news: asyncio.Queue[str] = asyncio.Queue()
        self.telemetry = Telemetry()
        self.parts = ChannelParts(
            catalogue=self.catalogue,
            channels=lambda: list(self.definitions.values()),
            executor_of=executors_of(ContinuousSettings()),
            telemetry=self.telemetry,
            deliver=self._deliver,
            clock=lambda: int(self.now * 1000),
            **fields,
        )
        self.service = ChannelService(self.parts)

    async def _deliver(self, channel: str, *, push: bool) -> None:
        self.deliveries.append((channel, push))
        self.news.put_nowait(channel)

    def channel(self, name: str, period: str, body: str = LOCAL, **fields: Any) -> None:
        self.create(body, *(["area"] if "area" in body.split() else []), name=name, period=period, **fields)
        self.definitions[name] = self.channels[name].definition
        self.subscribe(*(["A"] if self.channels[name].parameters else []), name=name)

    def tweet(self, tid: int) -> None:
        self.dataset("Tweets").insert([{"tid": tid, "area_code": "A"}])

    async def at(self, now: float) -> None:
        self.now = now
        await self.service.run_due()

    def tids(self, name: str) -> list[int]:
        return [record["tid"] for _, record in self.delivered(name)]

    def counted(self, outcome: str) -> float:
        value = self.telemetry.families.registry.get_sample_value("quaestor_channel_runs_total", {"outcome": outcome})
        return value or 0.0


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


async def test_each_channel_runs_by_its_period_and_brokers_are_notified_after_each_run(served: Served) -> None:
    served.channel("quick", "10s")
    served.channel("slow", "1m", push=True)
    await served.at(1)
    served.tweet(1)
    await served.at(10)
    assert (served.tids("quick"), served.tids("slow")) == ([1], [])
    served.tweet(2)
    await served.at(60)
    assert (served.tids("quick"), served.tids("slow")) == ([1, 2], [1, 2])
    assert sorted(served.deliveries) == [("quick", False), ("quick", False), ("slow", True)]
    assert [entry["rows"] for entry in served.service.status()] == [1, 2]


async def test_channels_that_are_due_together_execute_an_equal_join_once(served: Served) -> None:
    """From the second run on: the first one compiles the channels."""
    body = "SELECT t.tid FROM Tweets t, Schools s WHERE is_new(t) AND t.area_code = s.area_code AND s.area_code = area"
    for name, period in (("first", "10s"), ("second", "10s"), ("slow", "1m")):
        served.channel(name, period, body)
    served.dataset("Schools").insert([{"sid": 1, "area_code": "A"}])
    await served.at(1)
    for tid in (1, 2):
        served.tweet(tid)
        await served.at(tid * 10)
    shared = {entry["channel"]: entry.get("shared", []) for entry in served.service.status()}
    assert sorted(shared["first"] + shared["second"]) == ["Schools", "Tweets", "join of Schools, Tweets"]
    assert served.tids("first") == served.tids("second") == [1, 2]
    assert not shared["slow"]


async def test_missed_instants_are_left_out_and_the_next_run_covers_them(served: Served) -> None:
    """A process that was away runs each channel once, over everything since."""
    served.channel("c", "10s")
    await served.at(1)
    for tid, at in enumerate((12, 25, 38)):
        served.now = at
        served.tweet(tid)
    await served.at(95)
    assert served.tids("c") == [0, 1, 2]
    assert served.counted("published") == 1
    await served.at(99)
    assert served.counted("published") == 1


async def test_a_clock_that_was_ahead_delays_no_run_after_it_is_right_again(served: Served) -> None:
    """A restart after the correction of the clock takes the period from now on, not from the run a day ahead."""
    served.channel("c", "10s")
    await served.at(1)
    served.tweet(1)
    await served.at(86_400)
    served.now = 20
    served.service = ChannelService(served.parts)
    await served.at(21)
    assert [entry["due"] for entry in served.service.status()] == [30_000_000]
    served.tweet(2)
    await served.at(30)
    assert served.tids("c") == [1, 2]


async def test_a_slow_channel_delays_no_other_and_goes_on_after_an_overrun(served: Served) -> None:
    """An overrun is reported, and stops nothing."""
    served.channel("quick", "10s")
    served.channel("stuck", "10s")
    await served.at(1)
    served.tweet(1)
    held, let_go = threading.Event(), threading.Event()
    runner = served.service._hosted["stuck"].runner
    run = runner.run

    def waiting(*arguments: Any, **options: Any) -> Any:
        held.set()
        assert let_go.wait(60)
        return run(*arguments, **options)

    runner.run = waiting  # type: ignore[method-assign]
    async with asyncio.TaskGroup() as tasks:
        served.now = 10
        await served.service.step(tasks)
        assert await asyncio.to_thread(held.wait, 60)
        assert await served.news.get() == "quick"
        served.now = 30
        await served.service.step(tasks)
        assert await served.news.get() == "quick"
        assert ("stuck", False) not in served.deliveries
        let_go.set()
    runner.run = run  # type: ignore[method-assign]
    served.tweet(2)
    await served.at(40)
    assert served.tids("stuck") == [1, 2]


async def test_a_run_longer_than_its_period_is_reported(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.channel("c", "1s")
    await served.at(1)
    times = iter(range(0, 1000, 5))
    monkeypatch.setattr("quaestor.channels.service.time.monotonic", lambda: float(next(times)))
    seen: list[str] = []
    monkeypatch.setattr(served.telemetry, "failure", lambda part, event, *_, **__: seen.append(event))
    await served.at(2)
    assert seen == ["channels.overrun"]


async def test_under_load_runs_begin_by_priority_and_late_ones_stretch_periods(served: Served) -> None:
    """With one place the urgent channel is first. Runs that begin late by minutes stretch the periods of low priority, which
    is reported, and loses nothing.
    """
    served.service = ChannelService(served.parts, at_once=1)
    for name, priority in (("ordinary", Priority.NORMAL), ("urgent", Priority.HIGH), ("background", Priority.LOW)):
        served.channel(name, "1s", priority=priority)
    await served.at(1)
    begun: list[str] = []
    seen: list[tuple[str, str]] = []
    served.telemetry.failure = lambda part, event, detail, **_: seen.append((event, str(detail)))  # type: ignore[method-assign]
    for name, hosted_ in served.service._hosted.items():
        run = hosted_.runner.run

        def noted(*arguments: Any, name: str = name, run: Any = run, **options: Any) -> Any:
            begun.append(name)
            served.now += 60
            return run(*arguments, **options)

        hosted_.runner.run = noted  # type: ignore[method-assign]
    for second in range(2, 40, 4):
        served.tweet(second)
        await served.at(int(served.now) + second)
    assert begun.index("urgent") < begun.index("ordinary")
    assert [event for event, _ in seen][:1] == ["channels.stretched"]
    stretch = {entry["channel"]: entry["stretch"] for entry in served.service.status()}
    assert stretch["urgent"] == 1 <= stretch["ordinary"] < stretch["background"]
    served.now += 10_000
    await served.at(int(served.now))
    assert served.tids("urgent") == served.tids("ordinary") == served.tids("background") == list(range(2, 40, 4))


async def test_a_channel_that_fails_waits_and_loses_nothing(served: Served) -> None:
    """A value that the query cannot take fails the run. After the value is gone, the next run covers everything."""
    served.channel("c", "10s", "SELECT t.tid, CAST(t.text AS BIGINT) AS n FROM Tweets t WHERE is_new(t)")
    served.channel("other", "10s")
    await served.at(1)
    served.dataset("Tweets").insert([{"tid": 1, "text": "no number", "area_code": "A"}, {"tid": 2, "text": "7"}])
    await served.at(10)
    assert served.counted("failed") == 1
    assert served.tids("other") == [1]
    served.dataset("Tweets").upsert([{"tid": 1, "text": "5", "area_code": "A"}])
    await served.at(60)
    assert sorted(served.tids("c")) == [1, 2]


async def test_definitions_are_taken_up_and_dropped_while_the_service_runs(served: Served) -> None:
    served.channel("c", "10s")
    await served.at(1)
    served.tweet(1)
    await served.at(10)
    definition = served.definitions.pop("c")
    served.tweet(2)
    await served.at(20)
    assert served.tids("c") == [1]
    assert served.service.status() == []
    served.definitions["c"] = ChannelDefinition(
        name="c", body=definition.body, parameters=(Parameter("area"),), period="1m"
    )
    await served.at(21)
    await served.at(60)
    assert served.tids("c") == [1, 2]


async def test_one_process_of_a_folder_runs_its_channels(tmp_path: Path) -> None:
    """A second process waits for the lock, and takes over when the first has ended."""
    served = Served(tmp_path / "tables")
    begun: list[str] = []

    def parts(name: str, waits: asyncio.Event, begins: asyncio.Event) -> ChannelParts:
        async def pause(_: float) -> None:
            waits.set()
            await asyncio.sleep(0)

        def event(*_: Any, **__: Any) -> None:
            begun.append(name)
            begins.set()

        telemetry = Telemetry()
        telemetry.event = event  # type: ignore[method-assign]
        return ChannelParts(
            catalogue=served.catalogue,
            channels=list,
            executor_of=executors_of(ContinuousSettings()),
            telemetry=telemetry,
            pause=pause,
        )

    first, second = (asyncio.Event(), asyncio.Event()), (asyncio.Event(), asyncio.Event())
    one = asyncio.create_task(hosted(tmp_path, parts("one", *first)))
    await first[0].wait()
    other = asyncio.create_task(hosted(tmp_path, parts("other", *second)))
    await second[0].wait()
    assert begun == ["one"]
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    await second[1].wait()
    assert begun == ["one", "other"]
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)
