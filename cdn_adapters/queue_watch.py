"""Watch of the queue of one place, by every process.

The watch sees which purges other processes have sent, and whether the place keeps up. Metrics and the log report the state, with
the bound that holds.
"""

from __future__ import annotations

import math
from typing import Final

from quaestor.cdn_adapters.backlog import DARK, OVER_BUDGET, SHORT_MS, Backlog
from quaestor.cdn_adapters.budget import MonthlyBudget
from quaestor.cdn_adapters.diagnosis import findings
from quaestor.cdn_adapters.place import Place
from quaestor.cdn_adapters.purge_waits import PurgeWaits
from quaestor.cdn_ports import CdnReport, Facts, Finding, Level
from quaestor.clock import Clock
from quaestor.observability.telemetry import Telemetry
from quaestor.purge_ports import PurgeOutbox, QueueSize

_MOST_AT_ONCE: Final = 1_000


class QueueWatch:
    """Watch of one queue.

    waits: of this process for purges.
    budget: of the place; None: no budget.
    """

    def __init__(
        self,
        place: Place,
        outbox: PurgeOutbox,
        queue: str,
        *,
        waits: PurgeWaits,
        budget: MonthlyBudget | None,
        telemetry: Telemetry,
        clock: Clock,
    ) -> None:
        self._place = place
        self._outbox = outbox
        self._queue = queue
        self._waits = waits
        self._budget = budget
        self._telemetry = telemetry
        self._clock = clock
        self._backlog = Backlog(place.capabilities)
        self._report = CdnReport(place=queue, state="ok", open=0, dead=0, stale_s=0.0)

    def copies_live_ms(self) -> int | None:
        """Return the longest life of copies that are handed out now; None: as long as otherwise."""
        return self._backlog.copies_live_ms

    def report(self) -> CdnReport:
        """See ReportingCdn: as of the last look."""
        return self._report

    async def diagnose(self, facts: Facts) -> list[Finding]:
        """See DiagnosedCdn."""
        busiest_per_s = await self._outbox.busiest(self._queue, now_ms=self._clock())
        size = await self._outbox.size(self._queue)
        faults = findings(self._place.capabilities, facts, busiest_per_s=busiest_per_s, dead=size.dead)
        if self._budget is not None:
            await self._budget.look()
            if self._budget.spent:
                why = f"the month's budget of {self._budget.most} purges is spent: nothing is purged before the next month"
                faults.append(Finding(level=Level.BLOCK, sentence=why))
        return faults

    async def look(self, state: str) -> str:
        """Look once; return the state of the place, for any sending process. Raises StoreError.

        state: as this process's sender knows it.
        """
        waits = self._waits.put()  # before the calls: the outbox may not know a purge that arrives during them
        members = list(waits)
        for start in range(0, len(members), _MOST_AT_ONCE):
            some = members[start : start + _MOST_AT_ONCE]
            still = await self._outbox.open(self._queue, some)
            self._waits.over(
                {member: waits[member] for member, is_open in zip(some, still, strict=True) if not is_open}
            )
        size = await self._outbox.size(self._queue)
        if self._budget is not None:
            await self._budget.look()
        spent = self._budget is not None and self._budget.spent
        now_ms = self._clock()
        state = self._backlog.update(size, state, now_ms, over_budget=spent)
        stale_s = self._backlog.stale_at_most_s(size, state, now_ms)
        if self._backlog.turned:
            self._tell(size, state, stale_s)
        self._telemetry.purging.update(self._place.name, self._queue, state, size, now_ms, stale_s=stale_s)
        self._report = CdnReport(
            place=self._queue,
            state=state,
            open=size.waiting + size.taken,
            dead=size.dead,
            stale_s=None if math.isinf(stale_s) else stale_s,
        )
        return state

    def _tell(self, size: QueueSize, state: str, stale_s: float) -> None:
        """Log that the place has fallen behind, with the bound that holds, or that it has caught up."""
        name = self._place.name
        if not self._backlog.late:
            self._telemetry.event("cdn.caught_up", cdn=name)
            return
        bound = "until its copies expire" if math.isinf(stale_s) else f"for {math.ceil(stale_s)} s at most"
        why = f"{size.waiting + size.taken} purges are open; it may serve what they are about {bound}"
        if state == OVER_BUDGET:
            assert self._budget is not None
            spent = f"the month's budget of {self._budget.most} purges is spent; {why}"
            self._telemetry.failure(
                "cdn", "cdn.over_budget", f"{spent}; copies live for {SHORT_MS // 1_000} s", cdn=name
            )
            return
        dark = " if it does not answer again" if state == DARK else ""
        self._telemetry.failure("cdn", "cdn.behind", why + dark, cdn=name)
