"""Live view: one snapshot a second, made once for all viewers, and only while a client looks."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import anyio.to_thread

from quaestor.clock import Clock
from quaestor.dashboard.applying import Applying
from quaestor.dashboard.canaries import Canaries
from quaestor.dashboard.history import History
from quaestor.dashboard.process_report import ProcessReporter, Report
from quaestor.dashboard.reports import SharedReports
from quaestor.dashboard.snapshot import composed
from quaestor.dashboard.windows import EVERY_S as SAMPLED_EVERY_S
from quaestor.errors import DependencyError, EventLayerError, StoreError
from quaestor.observability.telemetry import Telemetry
from quaestor.runtime.supervision.supervisor import KeptTask, Supervisor

EVERY_S: Final = 1.0
LOOKED_S: Final = 60.0
"""How long snapshots are made after the last look."""
_PUBLISHED_EVERY: Final = 5
_PATIENCE_S: Final = 10.0
_LATEST: Final = 15
"""Points of the history that a viewer receives who already has the earlier ones."""


@dataclass(frozen=True, slots=True)
class Body:
    """Body that any number of viewers receives, plain and packed."""

    plain: bytes
    packed: bytes


class Published(NamedTuple):
    """Published parameters that count, and the canary of them.

    number: of the publication; None: none is known.
    """

    number: int | None = None
    canary: dict[str, Any] | None = None


class LiveView:
    """Live view of one process. Use from its event loop.

    reporter: reporter of this process; None: it is not a process of the app.
    shared: reports of all processes; None: there is no other process.
    applying: source of the parameters that count.
    canaries: source of the facts about a canary.
    """

    def __init__(
        self,
        reporter: ProcessReporter | None,
        shared: SharedReports | None,
        applying: Applying | None,
        canaries: Canaries | None,
        *,
        telemetry: Telemetry,
        clock: Clock,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._supervisor = supervisor or Supervisor(telemetry)
        self._reporter, self._shared, self._applying = reporter, shared, applying
        self._canaries = canaries
        self._telemetry, self._clock = telemetry, clock
        self._history = History()
        self._looked_s = 0.0
        self._shown: tuple[Body, Body] | None = None
        self._made = asyncio.Event()
        self._tasks: dict[str, KeptTask] = {}
        self._published = Published()

    def begin(self) -> None:
        """Begin to sample this process's counters, and to report to other processes while a client looks at a dashboard there."""
        if self._reporter is not None:
            self._keep("dashboard-samples", partial(self._keep_sampling, self._reporter))
        if self._reporter is not None and self._shared is not None:
            self._keep("dashboard-reports", self._keep_telling)

    def _keep(self, name: str, work: Callable[[], Awaitable[None]]) -> bool:
        """Run work under this name, unless it runs already; return whether it was begun."""
        if name in self._tasks and not self._tasks[name].done:
            return False
        self._tasks[name] = self._supervisor.keep(name, work)
        return True

    async def stop(self) -> None:
        """Stop the background work; the object cannot be used afterwards."""
        for kept in reversed(self._tasks.values()):
            await kept.aclose()

    async def look(self, *, latest: bool) -> Body:
        """Snapshot of this second. Raises StoreError if none could be made.

        latest: whether only the last few points of the history are wanted.
        """
        self._looked_s = time.monotonic()
        if self._keep("dashboard", self._keep_viewing):
            self._made.clear()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._made.wait()
        except TimeoutError as error:
            raise StoreError("the processes' reports could not be put together in time") from error
        assert self._shown is not None
        whole, last = self._shown
        return last if latest else whole

    async def _keep_viewing(self) -> None:
        seconds = 0
        while time.monotonic() - self._looked_s < LOOKED_S:
            began_s = time.monotonic()
            if seconds % _PUBLISHED_EVERY == 0:
                await self._read_published()
            own = None if self._reporter is None else self._reporter.report()
            reports = await self._reports(own)
            now_ms = self._clock()
            try:
                made = await anyio.to_thread.run_sync(self._bodies, reports, now_ms)
            except (
                KeyError,
                TypeError,
                ValueError,
                IndexError,
                AttributeError,
            ) as error:  # an invalid report of another process
                self._telemetry.failure("admin", "dashboard.report_unreadable", repr(error))
                made = await anyio.to_thread.run_sync(self._bodies, [] if own is None else [own], now_ms)
            self._shown = made
            self._made.set()
            seconds += 1
            await asyncio.sleep(max(0.05, EVERY_S - (time.monotonic() - began_s)))

    async def _read_published(self) -> None:
        if self._applying is None or self._canaries is None:
            return
        self._published = Published()
        try:
            newest = (await self._applying.history())[-1]
            self._published = Published(newest.number)
            self._published = Published(newest.number, await self._canaries.shown(newest))
        except EventLayerError as error:
            self._telemetry.failure("event-layer", "ttl.parameters_unread", error)
        except StoreError as error:
            self._telemetry.failure("store", "ttl.canary_unjudged", error)

    async def _reports(self, own: Report | None) -> list[Report]:
        reports = [] if own is None else [own]
        if self._shared is not None:
            try:
                await self._shared.ask()
                shared = await self._shared.all(now_ms=self._clock())
            except StoreError as error:
                self._telemetry.failure("store", "dashboard.reports_unavailable", error)
            else:
                reports += [report for report in shared if own is None or report["process"] != own["process"]]
        return reports

    def _bodies(self, reports: Sequence[Report], now_ms: int) -> tuple[Body, Body]:
        snapshot: dict[str, Any] = composed(
            reports, now_ms=now_ms, published=self._published.number, canary=self._published.canary
        )
        self._history.add(reports, now_ms=now_ms)
        points = list(self._history.points)
        return _body({**snapshot, "points": points}), _body({**snapshot, "points": points[-_LATEST:]})

    async def _keep_sampling(self, reporter: ProcessReporter) -> None:
        while True:
            reporter.sample()
            await asyncio.sleep(SAMPLED_EVERY_S)

    async def _keep_telling(self) -> None:
        assert self._reporter is not None
        assert self._shared is not None
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                if await self._shared.asked():
                    await self._shared.tell(self._reporter.report())
            except DependencyError as error:
                self._telemetry.failure("store", "dashboard.reports_unavailable", error)


def _body(snapshot: dict[str, Any]) -> Body:
    plain = json.dumps(snapshot, separators=(",", ":")).encode()
    return Body(plain, gzip.compress(plain, compresslevel=5, mtime=0))
