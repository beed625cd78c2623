"""Earlier runs for the same request: what they say of the answer of the latest one, before it becomes an entry."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from quaestor.capture import Outcome
from quaestor.errors import QueryError
from quaestor.model import Query
from quaestor.planning.plan_cache import plan_of
from quaestor.ports import Registered
from quaestor.read_path.answered import ObservedRun
from quaestor.read_path.decision import Event
from quaestor.read_path.entries import Verdict
from quaestor.read_path.hidden_inputs import HIDDEN_INPUT, HiddenInputs
from quaestor.read_path.missing_reads import MISSING_READ, MissingReads


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """Memories of earlier runs: what they read, and the constants that they read it with."""

    missing_reads: MissingReads
    hidden_inputs: HiddenInputs

    def valid_until_ms(self, key: str, route: Hashable, run: ObservedRun, *, now_ms: int) -> int | Verdict | None:
        """Return when clock values and hidden inputs end an answer, None for never; or why it is not stored."""
        outcome = run.outcome
        judged = self.hidden_inputs.judge(key, route, outcome.run, started_ms=run.asked_ms, ended_ms=now_ms)
        if judged.until_ms is None:
            return outcome.valid_until_ms
        if judged.until_ms <= now_ms:
            detail = (
                f"{judged.description} names a value that the request does not contain and that differs between runs"
            )
            return Verdict(event=Event.UNGUARDED, reasons=(HIDDEN_INPUT,), detail=detail)
        return judged.until_ms if outcome.valid_until_ms is None else min(judged.until_ms, outcome.valid_until_ms)

    def missing(self, key: str, registered: Registered, *, now_ms: int) -> Verdict | None:
        """Return why an answer is not stored that was made of less than an earlier one."""
        missing = self.missing_reads.missing(key, registered, now_ms)
        if not missing:
            return None
        detail = f"an earlier run read {', '.join(missing)}, written since; this one did not: what stands in its place?"
        return Verdict(event=Event.UNGUARDED, reasons=(MISSING_READ,), detail=detail)

    def note(self, key: str, outcome: Outcome, registered: Registered) -> None:
        """Remember what the entry of a run was made of."""
        self.missing_reads.note(key, registered)
        if any(query.follows for query in outcome.run):
            ids = registered.ids[len(registered.ids) - len(registered.query_ids) :]
            guards = dict(zip(registered.query_ids, ids, strict=False))
            self.hidden_inputs.note(key, outcome.run, [guards.get(_query_id(read.query)) for read in outcome.reads])


def _query_id(query: Query) -> str:
    try:
        return plan_of(query).query_id
    except QueryError:
        return ""
