"""Explanation of a query: exact or widened, found by which index, changed by what, and whether it is cached at all.

Built from the same plan as the matching node and the same rules as capture, so it cannot say anything else than they do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from quaestor.capture.snapshot import Findings, snapshot
from quaestor.capture.text_indexes import searches
from quaestor.model import Operation, Query, Reason, Uncacheable
from quaestor.planning.plan import QueryPlan, Result, Window, plan_query
from quaestor.query import aggregation

DEFAULT_CLOCK_WINDOW_MS = 300_000

_WINDOWS = {
    (Window.NONE, False): "all matching records",
    (Window.NONE, True): "all matching records, in order",
    (Window.BOUNDARY, True): "the first {limit} in order: a match that sorts behind the last one changes nothing",
    (Window.BOUNDARY, False): "the {limit} nearest, or best by score: a match behind the last one changes nothing",
    (Window.UNORDERED, False): "any {limit} of the matching records: without a sort every new match counts",
    (Window.OFFSET, False): "a page without a sort: every record that begins or ceases to match counts",
    (Window.OFFSET, True): "a page of an ordered result: changes before it count too, changes behind it do not",
}
_CONTENT = {
    Result.COUNT: "a number: only records that begin or cease to match count",
    Result.VALUES: "the values of {key}: a write counts unless the record contributes the same values as before",
    Result.OPAQUE: "computed by a pipeline from the matching records",
}
_OTHERS = "; an update that touches none of them changes nothing"
_TIES = "records with equal sort keys stand in any order: with _id as the last sort key a tie at the end does not count"
_BEFORE_IMAGES = (
    "without pre-images in the collection (changeStreamPreAndPostImages) every delete counts, and every update that touches "
    "fields that matter"
)
_TEXT_INDEX = "what $text finds is said by its index: with --mongo-url or --text-index it is explained as it is run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Explanation of one query.

    match: "exact" or "widened".
    reason: why widened, else None.
    index: how a written record leads to the query.
    window: which of the matching records the result holds.
    fields: which fields' changes matter for records that match before and after.
    foreign: other collections every write to which counts.
    not_cached: why no response that ran this query is cached; empty: it is cached.
    remark: something that the collection's owner can do to make it better.
    """

    namespace: str
    operation: str
    query_id: str
    match: str
    reason: str | None
    index: str
    window: str
    fields: str
    foreign: tuple[str, ...]
    not_cached: tuple[str, ...]
    remark: str | None

    @property
    def cacheable(self) -> bool:
        """Whether a response that ran this query may be cached."""
        return not self.not_cached

    def to_json(self) -> str:
        """One JSON object on one line."""
        return json.dumps(
            {
                "namespace": self.namespace,
                "operation": self.operation,
                "query_id": self.query_id,
                "cacheable": self.cacheable,
                "not_cached": list(self.not_cached),
                "match": self.match,
                "reason": self.reason,
                "index": self.index,
                "window": self.window,
                "fields": self.fields,
                "foreign": list(self.foreign),
                "remark": self.remark,
            },
            ensure_ascii=False,
        )

    def text(self) -> str:
        """A few aligned lines for people."""
        lines = [
            ("query", f"{self.operation} on {self.namespace}"),
            ("cached", "yes" if self.cacheable else "no: " + "; ".join(self.not_cached)),
            ("match", self.match if self.reason is None else f"{self.match}: {self.reason}"),
            ("found by", self.index),
            ("result", self.window),
            (
                "fields that matter",
                self.fields + ("" if self.fields.startswith("all,") or self.fields == "all" else _OTHERS),
            ),
            ("also depends on", ", ".join(f"every write to {name}" for name in self.foreign)),
            ("remark", self.remark or ""),
        ]
        width = max(len(name) for name, value in lines if value)
        return "\n".join(f"{name.ljust(width)}  {value}" for name, value in lines if value)


def explain(
    query: Query,
    *,
    now_ms: int | None = None,
    clock_window_ms: int = DEFAULT_CLOCK_WINDOW_MS,
    images: bool | None = None,
    reasons: Iterable[Reason] = (),
) -> Explanation:
    """Explain a query as if it were run at now_ms (None: times in the filter are taken for constants).

    images: whether the collection records pre- and post-images, if that is known.
    reasons: further ones not to cache it, from who knows the collection. Raises MalformedQueryError if mongod would
        refuse it.
    """
    plan = plan_query(query)
    return Explanation(
        namespace=query.namespace,
        operation=query.operation.value,
        query_id=plan.query_id,
        match=plan.match,
        reason=plan.reason,
        index=plan.index,
        window=_window(plan),
        fields=plan.fields.describe() if plan.predicate is not None else "all, of every record",
        foreign=plan.foreign_namespaces,
        not_cached=tuple(
            f"{reason.value}: {detail}"
            for reason, detail in _refusals(query, now_ms, clock_window_ms) | dict.fromkeys(reasons)
        ),
        remark=_remark(plan, images),
    )


def _window(plan: QueryPlan) -> str:
    query = plan.query
    if plan.result is Result.RECORDS:
        return _WINDOWS[plan.window, bool(query.sort)].format(limit=query.limit)
    return _CONTENT[plan.result].format(key=query.distinct_key)


def _remark(plan: QueryPlan, images: bool | None) -> str | None:
    if plan.predicate is None:
        return _TEXT_INDEX if searches(plan.query) and plan.query.text_index is None else None
    if (plan.result is not Result.RECORDS or plan.window is Window.OFFSET) and not images:
        return _BEFORE_IMAGES
    if plan.window is Window.BOUNDARY and all(path != "_id" for path, _ in plan.query.sort):
        return _TIES
    return None


def _refusals(query: Query, now_ms: int | None, clock_window_ms: int) -> dict[Reason, None]:
    """Why capture would refuse a response that ran this query; without repetitions, in order."""
    findings = Findings()
    for part in (query.filter, query.projection, query.pipeline, query.let):
        snapshot(part, findings, lambda: 4)
    reasons = dict.fromkeys(findings.reasons)
    if query.operation is Operation.AGGREGATE:
        reasons |= dict.fromkeys(aggregation.refusals(query.pipeline))
    if now_ms is not None and any(abs(instant - now_ms) <= clock_window_ms for instant in findings.instants()):
        reasons[Reason(Uncacheable.CLOCK, "it names a time close to now, so it goes stale without any write")] = None
    return reasons
