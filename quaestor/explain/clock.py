"""Explanation of a query that follows the clock: when its result goes stale, or why that cannot be known."""

from __future__ import annotations

from dataclasses import replace

from quaestor.capture.clock_conditions import timed
from quaestor.capture.snapshot import NOW, Findings
from quaestor.errors import UnsupportedQueryError
from quaestor.model import Query, Reason, Uncacheable
from quaestor.planning.moments import Moment
from quaestor.planning.timed_conditions import TimedCondition

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))


def followed(query: Query, findings: Findings, *, now_ms: int) -> tuple[Query, str | None]:
    """Return the query as it is registered if it were run at now_ms, and when its result goes stale; None: no known instant.

    findings: of the query. Reasons against `$$NOW` that do not hold are removed; the cause of others is added.
    """
    if NOW not in findings.reasons:
        return query, None
    try:
        if query.collation is not None or query.let is not None:
            raise UnsupportedQueryError("the clock beside a collation or let")
        fields = {"filter": query.filter, "projection": query.projection, "pipeline": query.pipeline}
        condition = TimedCondition(timed(fields, declared=False))
    except UnsupportedQueryError as unplanned:
        findings.reasons.append(Reason(Uncacheable.CLOCK, unplanned.reason))
        return query, None
    findings.reasons = [reason for reason in findings.reasons if reason != NOW]
    ends = " or ".join(f"{path} passes {_written(moment)}" for path, moment in condition.compared)
    sentence = (
        f"goes stale by the clock at the first instant at which some record changes: {ends}; "
        "an index on the field lets each miss find that instant quickly"
    )
    at_ms = condition.at(now_ms)
    if query.pipeline:
        pipeline = ({**query.pipeline[0], "$match": at_ms}, *query.pipeline[1:])
        return replace(query, pipeline=pipeline, clock=condition.condition), sentence
    return replace(query, filter=at_ms, clock=condition.condition), sentence


def _written(moment: Moment) -> str:
    shift_ms = moment.before_ms + moment.after_ms
    text = "now" if moment.unit_ms == 1 else f"now floored to {_amount(moment.unit_ms)}"
    if not shift_ms:
        return text
    return f"{text} {'+' if shift_ms > 0 else '-'} {_amount(abs(shift_ms))}"


def _amount(amount_ms: int) -> str:
    unit, unit_ms = next((unit, unit_ms) for unit, unit_ms in _UNITS if amount_ms % unit_ms == 0)
    return f"{amount_ms // unit_ms} {unit}"
