"""Service of channels: runs what is due, delivers, and drops old results. Owned by the supervisor of the process.

One process of a folder runs its channels, by a lock. In an object store several may: the first to publish an interval wins, and
the others change nothing.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from quaestor.channels.rewriting.compilation import CompiledChannel, compile_channel
from quaestor.channels.rewriting.definition import ChannelDefinition
from quaestor.channels.rewriting.shared_joins import asked_by_several
from quaestor.channels.run_queue import RESISTANCE, Cost, RunQueue, Turn
from quaestor.channels.runs.history import RunReport, keep
from quaestor.channels.runs.queries import shapes
from quaestor.channels.runs.relations import Relations
from quaestor.channels.runs.results import Results
from quaestor.channels.runs.run import Runner, RunOutcome
from quaestor.clock import Clock, system_clock
from quaestor.continuous.announcements import Announcements, unheard
from quaestor.continuous.executors.executor import Executor
from quaestor.continuous.schedule.periods import Every, period
from quaestor.continuous.schedule.queue import Schedule
from quaestor.errors import QuaestorError
from quaestor.observability.telemetry import Telemetry
from quaestor.tables.catalogue import Catalogue

MOST_AT_ONCE: Final = max(4, 2 * (os.cpu_count() or 1))
"""Runs that begin side by side. Slow ones run beside them."""
_MOST_THREADS: Final = 64
"""Most runs at the same time, slow ones included, each in a thread of its own."""
_MOST_NAMED: Final = 10
_SECOND: Final = 1_000_000


class Delivery(Protocol):
    """Delivery of the newest results of a channel. push: whether results are sent; otherwise brokers are notified."""

    def __call__(self, channel: str, *, push: bool) -> Awaitable[object]:
        """Deliver. A broker that fails is reported, and raises nothing."""
        ...


async def nobody_delivers(channel: str, *, push: bool) -> object:
    """Deliver nothing: brokers pull."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelParts:
    """Parts that the service works with.

    channels: returns the definitions of the channels to run; paused ones are left out.
    executor_of: returns an executor for one channel.
    deliver: notifies the brokers of a channel, and pushes results if the channel does so; after each run.
    published: called with the name of a channel that has new results, until it raises no error.
    pause: waits for some seconds.
    """

    catalogue: Catalogue
    channels: Callable[[], Sequence[ChannelDefinition]]
    executor_of: Callable[[str], Executor]
    telemetry: Telemetry
    deliver: Delivery = nobody_delivers
    published: Callable[[str], Awaitable[object]] = unheard
    clock: Clock = system_clock
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(slots=True, kw_only=True)
class _Hosted:
    """Channel in this process. outcome: of its newest run here."""

    definition: ChannelDefinition
    runner: Runner
    executor: Executor
    cost: Cost
    compiled: CompiledChannel | None = None
    outcome: RunOutcome | None = None


class _Occasion(NamedTuple):
    """Instant at which channels are due, and the keys of the joins that several of them have."""

    due: int
    joins: frozenset[str]


class ChannelService:
    """Runs of all channels.

    look_s: seconds between two looks at the definitions.
    at_once: most runs at once that are not slow, see RunQueue.

    A run that takes longer than its period skips the missed instants, and its channel goes on: the next run covers everything
    since. Nothing stops a channel but its owner. While runs begin late, periods are stretched, those of low priority first.
    """

    def __init__(self, parts: ChannelParts, *, look_s: float = 1.0, at_once: int = MOST_AT_ONCE) -> None:
        self._parts = parts
        self._look_s = look_s
        self._schedule = Schedule()
        self._queue = RunQueue(at_once)
        self._relations = Relations(parts.catalogue)
        self._hosted: dict[str, _Hosted] = {}
        self._delivering: set[str] = set()
        self._announcements = Announcements(parts.published, self._not_announced)
        self._threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="channel")
        self._stretch = 1

    async def keep_running(self) -> None:
        """Run channels until cancelled. A slow channel or broker delays no other."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await self.step(tasks)
                    await self._parts.pause(self._pause_s())
        finally:
            self._threads.shutdown(wait=False)

    async def run_due(self) -> None:
        """Run what is due now, and return when all of it has ended."""
        async with asyncio.TaskGroup() as tasks:
            await self.step(tasks)

    async def step(self, tasks: asyncio.TaskGroup) -> None:
        """Take up changes of the definitions, and begin what is due."""
        try:
            definitions = await self._in_thread(lambda: list(self._parts.channels()))
        except QuaestorError as error:
            self._parts.telemetry.failure("channels", "channels.definitions_unread", error)
        else:
            await self._take_up(definitions)
        await self._announcements.report()
        now = self._now()
        together: dict[int, list[_Hosted]] = {}
        for due in self._schedule.take(now):
            together.setdefault(due.at, []).extend(self._hosted[name] for name in due.names)
        runs: list[tuple[Turn, _Hosted, _Occasion]] = []
        for at, channels in together.items():
            joins = asked_by_several(channel.compiled.joins for channel in channels if channel.compiled is not None)
            for channel in channels:
                turn = Turn(channel.definition.priority, at + int(channel.cost.length_s * _SECOND))
                runs.append((turn, channel, _Occasion(at, joins)))
        for turn, channel, occasion in sorted(runs, key=lambda run: run[0].order):
            tasks.create_task(self._run(channel, turn, occasion, tasks))
        self._report_stretch()

    def _report_stretch(self) -> None:
        """Report the factor of periods, and a growing one as a failure: runs begin later than their channels ask for."""
        factor = self._schedule.factor
        self._parts.telemetry.channels.stretch.set(factor)
        if factor > self._stretch:
            stretched = [name for name in self._hosted if self._schedule.factor_of(name) > 1]
            detail = f"runs begin late: periods of {len(stretched)} channels are stretched up to {factor} times"
            self._parts.telemetry.failure("channels", "channels.stretched", detail, channels=stretched[:_MOST_NAMED])
        self._stretch = factor

    def status(self) -> list[dict[str, Any]]:
        """Return the state of each channel in this process: its next run, lateness, newest outcome and choices."""
        return [
            {
                "channel": entry.name,
                "due": entry.due,
                "running": entry.running,
                "errors": entry.errors,
                "late_s": entry.late / _SECOND,
                "priority": self._hosted[entry.name].definition.priority.value,
                "stretch": self._schedule.factor_of(entry.name),
                **_described(self._hosted[entry.name].outcome),
            }
            for entry in self._schedule.entries()
        ]

    def _pause_s(self) -> float:
        due = self._schedule.next_due()
        return self._look_s if due is None else max(0.0, min(self._look_s, (due - self._now()) / _SECOND))

    def _now(self) -> int:
        return self._parts.clock() * 1_000

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _take_up(self, definitions: Sequence[ChannelDefinition]) -> None:
        """Compare the definitions with the known ones, and change the schedule."""
        present = {definition.name: definition for definition in definitions}
        for name in self._hosted.keys() - present.keys():
            self._schedule.remove(name)
            self._hosted.pop(name).executor.close()
            self._announcements.add(name)
        for name, definition in present.items():
            known = self._hosted.get(name)
            if known is not None and known.definition == definition:
                continue
            if known is None:
                executor = self._parts.executor_of(name)
                runner = Runner(self._parts.catalogue, executor, relations=self._relations)
                cost = Cost(_period_s(definition))
                self._hosted[name] = _Hosted(definition=definition, runner=runner, executor=executor, cost=cost)
                self._announcements.add(name)  # the process before may have ended between publication and announcement
            else:
                known.definition, known.compiled = definition, None
                known.cost.period_s = _period_s(definition)
            await self._put(definition)
        self._parts.telemetry.channels.channels.set(len(present))

    async def _put(self, definition: ChannelDefinition) -> None:
        every = period(definition.period)
        try:
            last = await self._in_thread(lambda: Results(self._parts.catalogue, definition.name).progress().run)
        except QuaestorError:
            last = None  # the run reports the failure
        now = self._now()
        due = every.next(now)
        if last is not None:
            due = min(due, max(now, every.next(last)))  # a clock that was ahead has left a late run
        resistance = RESISTANCE[definition.priority]
        self._schedule.put(definition.name, every, definition.name, due=due, resistance=resistance)

    async def _run(self, channel: _Hosted, turn: Turn, occasion: _Occasion, tasks: asyncio.TaskGroup) -> None:
        """Run a channel once, when it is its turn. Raises nothing that a channel can cause."""
        metrics, name = self._parts.telemetry.channels, channel.definition.name
        began_s = time.monotonic()
        try:
            async with self._queue.place(turn, channel.cost):
                self._schedule.began(name, self._now())
                metrics.lag_s.set(max(0, self._now() - occasion.due) / _SECOND if occasion.due else 0)
                began_s = time.monotonic()
                outcome = await self._in_thread(lambda: self._run_in_thread(channel, occasion))
        except Exception as error:  # a channel must not end the others, whatever an engine raises
            await self._keep(channel, began_s, None, str(error))
            metrics.runs.labels("failed").inc()
            self._parts.telemetry.failure("channels", "channels.run_failed", error, channel=name)
            channel.compiled = None
            self._schedule.failed(name, self._now(), str(error), passes=True)
            return
        channel.outcome = outcome
        report = await self._keep(channel, began_s, outcome)
        channel.cost.note(report.took_s)
        metrics.runs.labels(report.outcome).inc()
        metrics.rows.inc(outcome.rows)
        metrics.run_s.observe(report.took_s)
        for stage, seconds in outcome.seconds.items():
            metrics.stage_s.labels(stage).inc(seconds)
        if report.is_overrun:
            detail = f"{name} took {report.took_s:.1f} s, more than its period of {report.period_s:g} s"
            self._parts.telemetry.failure("channels", "channels.overrun", detail, channel=name)
        self._schedule.done(name, self._now())
        if outcome.rows:
            self._announcements.add(name)
            await self._announcements.report()
        if name not in self._delivering:
            self._delivering.add(name)
            tasks.create_task(self._deliver(name, push=channel.definition.push))

    def _not_announced(self, name: str, error: QuaestorError) -> None:
        self._parts.telemetry.failure("channels", "channels.unannounced", error, channel=name)

    def _run_in_thread(self, channel: _Hosted, occasion: _Occasion) -> RunOutcome:
        definition, catalogue = channel.definition, self._parts.catalogue
        if channel.compiled is None:
            channel.compiled = compile_channel(definition, shapes(catalogue))
        now = self._now()
        return channel.runner.run(channel.compiled, now, due=occasion.due, joins=occasion.joins)

    async def _keep(self, channel: _Hosted, began_s: float, outcome: RunOutcome | None, error: str = "") -> RunReport:
        """Keep the report of a run for operators, and return it. outcome: None: the run failed."""
        took_s = time.monotonic() - began_s
        report = RunReport(
            run=self._now() if outcome is None else outcome.run,
            outcome="failed" if outcome is None else "published" if outcome.published else "outrun",
            took_s=took_s,
            period_s=channel.cost.period_s,
            rows=0 if outcome is None else outcome.rows,
            seconds={} if outcome is None else outcome.seconds,
            error=error,
        )
        with suppress(QuaestorError):  # the run counts without its report
            await self._in_thread(lambda: keep(Results(self._parts.catalogue, channel.definition.name), report))
        return report

    async def _deliver(self, name: str, *, push: bool) -> None:
        try:
            await self._parts.deliver(name, push=push)
        except QuaestorError as error:
            self._parts.telemetry.failure("channels", "channels.undelivered", error, channel=name)
        finally:
            self._delivering.discard(name)


def _period_s(definition: ChannelDefinition) -> float:
    every = period(definition.period)
    return every.length / _SECOND if isinstance(every, Every) else 0.0


def _described(outcome: RunOutcome | None) -> dict[str, Any]:
    if outcome is None:
        return {}
    return {
        "run": outcome.run,
        "rows": outcome.rows,
        "seconds": dict(outcome.seconds),
        "reasons": list(outcome.reasons),
        "shared": list(outcome.shared),
    }
