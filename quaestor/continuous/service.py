"""Service of continuous queries: runs what is due, and delivers results. Owned by the supervisor of the process.

Only one process runs the queries of a folder: the process that holds its lock. In an object store every process runs them, and
the first to publish an interval wins.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from quaestor.clock import Clock, system_clock
from quaestor.continuous.announcements import Announcements, unheard
from quaestor.continuous.delivery.batch import moment
from quaestor.continuous.delivery.courier import Courier
from quaestor.continuous.delivery.sink import Sink, shown
from quaestor.continuous.engine import Engine
from quaestor.continuous.functions import PREFIX
from quaestor.continuous.installed import InstalledQueries, InstalledQuery, State
from quaestor.continuous.runs.deliveries import deliver
from quaestor.continuous.runs.execution import Executions
from quaestor.continuous.runs.results import maintain_results
from quaestor.continuous.runs.run import Run
from quaestor.continuous.schedule.periods import duration, period
from quaestor.continuous.schedule.queue import Schedule
from quaestor.continuous.sql.refusals import UnknownTableError
from quaestor.errors import ConfigurationError, DependencyError, QuaestorError
from quaestor.observability.telemetry import Telemetry
from quaestor.observability.vocabularies import QUERY_STATES
from quaestor.tables.catalogue import Catalogue

T = TypeVar("T")

_MAINTAIN_EVERY: Final = 600 * 1_000_000
"""Time between two maintenances of the result tables, in microseconds."""
AT_ONCE: Final = 16
"""Most runs at the same time. Further runs wait for a thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceParts:
    """Parts that the service works with.

    sink_of: returns the sink of an address; None: another process delivers to it. Raises ConfigurationError.
    published: called with the name of a query whose results have changed, until it raises no error.
    pause: waits for some seconds.
    """

    catalogue: Catalogue
    installed: InstalledQueries
    engine: Engine
    courier: Courier
    sink_of: Callable[[str], Sink | None]
    telemetry: Telemetry
    clock: Clock = system_clock
    published: Callable[[str], Awaitable[object]] = unheard
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep


class ContinuousService:
    """Runs of all installed queries. Runs have threads of their own, so slow queries hold up no other work of the process.

    look_s: seconds between two looks at the list of installed queries.
    """

    def __init__(self, parts: ServiceParts, *, look_s: float = 1.0) -> None:
        self._parts = parts
        self._look_s = look_s
        self._schedule = Schedule()
        self._known: dict[str, InstalledQuery] = {}
        self._executions = Executions(parts.engine, parts.catalogue)
        self._announcements = Announcements(parts.published, self._not_announced)
        self._undelivered: set[str] = set()
        self._delivering: set[tuple[str, str]] = set()
        self._kept_up: set[str] = set()
        self._maintain_at = 0
        self._threads = ThreadPoolExecutor(AT_ONCE, "quaestor-continuous")

    @property
    def schedule(self) -> Schedule:
        """The schedule, for reports."""
        return self._schedule

    async def keep_running(self) -> None:
        """Run queries until cancelled. A slow query or receiver delays no other."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await self.step(tasks)
                    await self._parts.pause(self._pause_s())
        finally:
            self._threads.shutdown(wait=False)

    async def run_due(self) -> None:
        """Run what is due now, deliver it, and return when all of it has ended."""
        async with asyncio.TaskGroup() as tasks:
            await self.step(tasks)

    async def step(self, tasks: asyncio.TaskGroup) -> None:
        """Take up changes of the installed queries, and begin what is due."""
        try:
            installed = await asyncio.to_thread(self._parts.installed.all)
        except DependencyError as error:
            self._parts.telemetry.failure("continuous", "continuous.queries_unread", error)
        else:
            await self._take_up(installed, tasks)
        await self._announcements.report()
        await self._keep_up(tasks)
        metrics = self._parts.telemetry.continuous
        now = self._now()
        given: list[InstalledQuery] = []
        for due in self._schedule.take(now):
            metrics.lag_s.set(max(0, now - due.at) / 1_000_000 if due.at else 0)
            self._warn(due.overdue)
            given += [self._known[name] for name in due.names]
        if given:
            tasks.create_task(self._begin(given, tasks))
        metrics.stretch.set(self._schedule.factor)

    async def _keep_up(self, tasks: asyncio.TaskGroup) -> None:
        """Begin the maintenance of the result tables, and the requested replay, unless they go on already."""
        now = self._now()
        in_time = self._maintain_at - _MAINTAIN_EVERY <= now < self._maintain_at  # a clock may go back
        if not in_time and "maintenance" not in self._kept_up:
            self._maintain_at = now + _MAINTAIN_EVERY
            self._kept_up.add("maintenance")
            tasks.create_task(self._maintain(list(self._known.values())))
        if "replay" not in self._kept_up:
            self._kept_up.add("replay")
            tasks.create_task(self._replay_asked())

    async def _maintain(self, queries: list[InstalledQuery]) -> None:
        """Join the small files of result tables, and delete files without readers."""
        try:
            for query in queries:
                for name in query.tables:
                    try:
                        await asyncio.to_thread(maintain_results, self._parts.catalogue, name, self._parts.clock())
                    except Exception as error:  # see _deliver_to
                        self._parts.telemetry.failure("continuous", "tables.maintenance_failed", error, table=name)
        finally:
            self._kept_up.discard("maintenance")

    async def _replay_asked(self) -> None:
        try:
            await self._parts.courier.replay_asked(self._function_of)
        except Exception as error:  # see _deliver_to
            self._parts.telemetry.failure("delivery", "delivery.stopped", error)
        finally:
            self._kept_up.discard("replay")

    def _function_of(self, address: str) -> Sink | None:
        return self._parts.sink_of(address) if address.startswith(PREFIX) else None

    def _pause_s(self) -> float:
        due = self._schedule.next_due()
        return self._look_s if due is None else max(0.0, min(self._look_s, (due - self._now()) / 1_000_000))

    def _now(self) -> int:
        return self._parts.clock() * 1_000

    async def _take_up(self, installed: list[InstalledQuery], tasks: asyncio.TaskGroup) -> None:
        """Compare the installed queries with the known ones, and change the schedule."""
        present = {query.name: query for query in installed}
        for name in self._known.keys() - present.keys():
            self._schedule.remove(name)
            self._executions.forget(name)
            self._announcements.add(name)
        changed = {name: query for name, query in present.items() if query != self._known.get(name)}
        runs = [query for query in changed.values() if query.runs]
        lasts = await asyncio.to_thread(self._lasts, runs) if runs else {}
        for name, query in changed.items():
            before = self._known.get(name)
            if before is None:
                self._announcements.add(name)  # the process before may have ended between publication and announcement
            if before is None or query.text != before.text:
                self._executions.forget(name)
            if not query.runs:
                self._schedule.remove(name)
            else:
                self._put(query, lasts[name])
            self._deliver(query, tasks)
        self._known = present
        states = [query.state.value for query in installed]
        for state in QUERY_STATES:
            self._parts.telemetry.continuous.queries.labels(state).set(states.count(state))

    def _lasts(self, queries: list[InstalledQuery]) -> dict[str, int]:
        """Return the end of the last run of each query, or its beginning if it has not run."""
        return {query.name: self._last(query) for query in queries}

    def _last(self, query: InstalledQuery) -> int:
        try:
            return self._parts.installed.progress(query)
        except QuaestorError:
            return query.start  # the run reports the failure

    def _put(self, query: InstalledQuery, last: int) -> None:
        every = period(query.every)
        now = self._now()
        self._schedule.put(
            query.name,
            every,
            query.text,
            due=max(now, every.next(last)) if 0 < last <= now else now,  # a clock may have gone back since the last run
            at_most=duration(query.at_most) if query.at_most else None,
        )

    def _warn(self, overdue: Iterable[str]) -> None:
        for name in overdue:
            entry = self._schedule.get(name)
            late_s = 0.0 if entry is None else entry.late / 1_000_000
            self._parts.telemetry.failure(
                "continuous", "continuous.late", f"{name} began {late_s:.0f} s late; its user accepts less", query=name
            )

    async def _in_thread(self, queries: Sequence[InstalledQuery], work: Callable[[], T]) -> T:
        """Execute queries in a thread for runs, and note when the execution begins. Waits while all threads are busy."""
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()

        def execute() -> T:
            loop.call_soon_threadsafe(self._began, queries)
            return work()

        return await loop.run_in_executor(self._threads, context.run, execute)

    def _began(self, queries: Sequence[InstalledQuery]) -> None:
        now = self._now()
        self._warn([query.name for query in queries if self._schedule.began(query.name, now)])

    async def _begin(self, queries: list[InstalledQuery], tasks: asyncio.TaskGroup) -> None:
        """Run queries that are due at the same time; those of equal shape as one plan."""
        try:
            groups = await asyncio.to_thread(self._executions.groups, queries)
        except Exception:  # each query alone shows which of them fails
            groups = [[query] for query in queries]
        for group in groups:
            if len(group) > 1:
                tasks.create_task(self._run_together(group, tasks))
            else:
                tasks.create_task(self._run(group[0], tasks))

    async def _run_together(self, queries: list[InstalledQuery], tasks: asyncio.TaskGroup) -> None:
        began_s = time.monotonic()
        try:
            outcomes = await self._in_thread(queries, lambda: self._executions.run_together(queries))
        except Exception:  # each query alone shows which of them fails
            for query in queries:
                tasks.create_task(self._run(query, tasks))
            return
        self._parts.telemetry.continuous.run_s.observe(time.monotonic() - began_s)
        for query in queries:
            outcome = outcomes[query.name]
            if isinstance(outcome, Run):
                await self._ended(query, outcome, tasks)
            else:
                await self._failed(query, outcome)
        await self._announcements.report()

    async def _run(self, query: InstalledQuery, tasks: asyncio.TaskGroup) -> None:
        """Run a query once. Raises nothing that a query can cause."""
        began_s = time.monotonic()
        try:
            outcome = await self._in_thread([query], lambda: self._executions.run(query))
        except Exception as error:  # a query must not end the others, whatever an engine raises
            await self._failed(query, error)
            return
        self._parts.telemetry.continuous.run_s.observe(time.monotonic() - began_s)
        await self._ended(query, outcome, tasks)
        await self._announcements.report()

    async def _failed(self, query: InstalledQuery, error: Exception) -> None:
        if isinstance(error, UnknownTableError):
            await self._waits(query, error)
            return
        self._parts.telemetry.continuous.runs.labels("failed").inc()
        self._parts.telemetry.failure("continuous", "continuous.run_failed", error, query=query.name)
        self._executions.forget(query.name)
        passes = isinstance(error, DependencyError) and error.retryable
        if self._schedule.failed(query.name, self._now(), str(error), passes=passes):
            await self._quarantine(query, str(error))

    async def _waits(self, query: InstalledQuery, error: UnknownTableError) -> None:
        """Let a query whose table does not exist look again at its next due time. No error counts."""
        self._executions.forget(query.name)
        self._schedule.done(query.name, self._now())
        if query.state is not State.WAITING:
            self._parts.telemetry.failure("continuous", "continuous.waiting", error, query=query.name)
            await self._note(self._parts.installed.wait, query.name, str(error))

    async def _note(self, change: Callable[..., InstalledQuery], name: str, *reason: str) -> None:
        """Change the state of a query durably. A failure is reported; the next run tries again."""
        try:
            self._known[name] = await asyncio.to_thread(change, name, *reason)
        except QuaestorError as error:
            self._parts.telemetry.failure("continuous", "continuous.queries_unread", error)

    async def _ended(self, query: InstalledQuery, outcome: Run, tasks: asyncio.TaskGroup) -> None:
        metrics = self._parts.telemetry.continuous
        metrics.runs.labels("published" if outcome.published else "outrun").inc()
        metrics.rows.inc(outcome.rows)
        for source, read in (("tables", outcome.read), ("results", outcome.read_results)):
            metrics.read_rows.labels(source).inc(read.rows)
            metrics.read_bytes.labels(source).inc(read.bytes)
        self._schedule.done(query.name, self._now())
        if query.state is State.WAITING:
            await self._note(self._parts.installed.go_on, query.name)
        for table, upto in outcome.missed.items():
            self._parts.telemetry.failure(
                "continuous",
                "continuous.versions_missed",
                f"{query.name} misses versions of {table}: those superseded between {moment(outcome.after)} and"
                f" {moment(upto)} were dropped before it ran; run it more often than table_days",
                query=query.name,
            )
        if outcome.rows:
            self._announcements.add(query.name)
        if outcome.rows or query.name in self._undelivered:
            self._undelivered.discard(query.name)
            self._deliver(query, tasks)

    def _not_announced(self, name: str, error: QuaestorError) -> None:
        self._parts.telemetry.failure("continuous", "continuous.unannounced", error, query=name)

    async def _quarantine(self, query: InstalledQuery, reason: str) -> None:
        self._parts.telemetry.failure("continuous", "continuous.quarantined", reason, query=query.name)
        await self._note(self._parts.installed.quarantine, query.name, reason)

    def _deliver(self, query: InstalledQuery, tasks: asyncio.TaskGroup) -> None:
        """Begin the deliveries of a query, one task for each sink, unless they go on already."""
        for address in query.sinks:
            if (query.name, address) in self._delivering:
                self._undelivered.add(query.name)  # the delivery may be about to end
                continue
            try:
                sink = self._parts.sink_of(address)
            except ConfigurationError as error:
                self._parts.telemetry.failure(
                    "delivery", "delivery.misconfigured", error, lasting=True, query=query.name
                )
                self._undelivered.add(query.name)
                continue
            if sink is not None:
                self._delivering.add((query.name, address))
                tasks.create_task(self._deliver_to(query, address, sink))

    async def _deliver_to(self, query: InstalledQuery, address: str, sink: Sink) -> None:
        try:
            while await deliver(query, sink, self._parts.catalogue, self._parts.courier):
                pass  # results may have come meanwhile
        except Exception as error:  # a delivery must not end the queries, whatever a table or a driver raises
            self._parts.telemetry.failure("delivery", "delivery.stopped", error, query=query.name, sink=shown(address))
            self._undelivered.add(query.name)
        finally:
            self._delivering.discard((query.name, address))
