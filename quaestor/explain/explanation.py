"""Explanation of a query: exact or widened, found by which index, changed by what, and whether it is cached at all.

Built from the same plan as the matching node, and by the same rules as capture: an explanation contradicts neither.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from quaestor.capture.recorder import DEFAULT_CLOCK_WINDOW_MS, ends_ms
from quaestor.capture.result_digests import may_be_compared
from quaestor.capture.snapshot import Findings, snapshot
from quaestor.capture.text_indexes import searches
from quaestor.explain.clock import followed
from quaestor.model import Operation, Query, Reason, Uncacheable
from quaestor.planning.contributing import describe_contributors
from quaestor.planning.plan import QueryPlan, plan_query
from quaestor.planning.plan_parts import Result, Window
from quaestor.planning.required_conditions import required_condition
from quaestor.query import aggregation

_SOME = (
    "any {limit} of the matching records, all of them while there are no more: without a sort every new match counts"
)
_WINDOWS = {
    (Window.NONE, False): "all matching records",
    (Window.NONE, True): "all matching records, in order",
    (Window.BOUNDARY, True): "the first {limit} in order: a match that sorts behind the last one changes nothing",
    (Window.BOUNDARY, False): "the {limit} nearest, or best by score: a match behind the last one changes nothing",
    (Window.UNORDERED, False): _SOME,
    (Window.OFFSET, False): "a page without a sort: every record that begins or ceases to match counts",
    (Window.OFFSET, True): "a page of an ordered result: changes before it count too, changes behind it do not",
}
_BY_ID = ", at most {most} by the _id that the filter names"
_CONTENT = {
    Result.COUNT: "a number: only records that begin or cease to match count",
    Result.VALUES: "the values of {key}: a write counts unless the record contributes the same values as before",
    Result.OPAQUE: "computed by a pipeline from the matching records",
}
_OTHERS = "; an update that touches none of them changes nothing"
_TIES = "records with equal sort keys stand in any order: with _id as the last sort key a tie at the end does not count"
_BEFORE_IMAGES = (
    "without pre-images in the collection (changeStreamPreAndPostImages) every delete counts, and every update that touches "
    "fields that matter, wherever more records contribute than max_contributors"
)
_INDEXES = (
    "the order is left open, so the fields of compound indexes matter as well: with --mongo-url they are looked up"
)
_RECHECKED = (
    "a write that may have changed the result evicts it only if the query, run again, has another one. "
    "This check is made where it costs less than the misses it saves (setting recheck)"
)
_TEXT_INDEX = "what $text finds is said by its index: with --mongo-url or --text-index it is explained as it is run"
_HIDDEN_INPUT = (
    "a value that differs between two runs for one request, and that the request does not contain, bounds the answer's life "
    "(hidden-input)"
)

_FOLLOWS_THE_CLOCK = Reason(
    Uncacheable.CLOCK, "it names a time that follows the clock (now, or shifted from it by a round amount)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Explanation of one query.

    match: "exact" or "widened".
    reason: why widened, else None.
    index: how a written record leads to the query.
    requires: what a record must have for that, with the query's values; None: nothing, every write tries it.
    window: which of the matching records the result holds.
    fields: which fields' changes matter for records that match before and after.
    foreign: the other collections that the query reads.
    foreign_writes: the writes to these collections that count, in words.
    not_cached: why no response that ran this query is cached; empty: it is cached.
    valid_until_ms: end of a response that ran the query now, without any write. A value in the query may be the present time,
    floored to a unit. None: no such end.
    kept: what is kept of the records that contribute to the result without being shown, if they are few enough (setting
        `max_contributors`).
    remark: a change that would improve the matching or the explanation.
    """

    namespace: str
    operation: str
    query_id: str
    match: str
    reason: str | None
    index: str
    requires: str | None
    window: str
    fields: str
    foreign: tuple[str, ...]
    foreign_writes: tuple[str, ...]
    not_cached: tuple[str, ...]
    valid_until_ms: int | None
    kept: str | None
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
                "valid_until_ms": self.valid_until_ms,
                "match": self.match,
                "reason": self.reason,
                "index": self.index,
                "requires": self.requires,
                "window": self.window,
                "fields": self.fields,
                "foreign": list(self.foreign),
                "foreign_writes": list(self.foreign_writes),
                "kept": self.kept,
                "remark": self.remark,
            },
            ensure_ascii=False,
        )

    def text(self) -> str:
        """A few aligned lines for people."""
        lines = [
            ("query", f"{self.operation} on {self.namespace}"),
            ("cached", self._cached()),
            ("match", self.match if self.reason is None else f"{self.match}: {self.reason}"),
            ("found by", self.index),
            ("requires", self.requires or ""),
            ("result", self.window),
            (
                "fields that matter",
                self.fields + ("" if self.fields.startswith("all,") or self.fields == "all" else _OTHERS),
            ),
            ("also depends on", "; ".join(self.foreign_writes)),
            ("kept", self.kept or ""),
            ("remark", self.remark or ""),
        ]
        width = max(len(name) for name, value in lines if value)
        return "\n".join(f"{name.ljust(width)}  {value}" for name, value in lines if value)

    def _cached(self) -> str:
        if not self.cacheable:
            return "no: " + "; ".join(self.not_cached)
        if self.valid_until_ms is None:
            return "yes"
        end = datetime.fromtimestamp(self.valid_until_ms / 1000, UTC)
        return (
            f"yes, until {end:%Y-%m-%dT%H:%M:%SZ}: a time in it may be floored to a unit of the clock, which ends then"
        )


def explain(
    query: Query,
    *,
    now_ms: int | None = None,
    clock_window_ms: int = DEFAULT_CLOCK_WINDOW_MS,
    images: bool | None = None,
    indexes_known: bool = False,
    reasons: Iterable[Reason] = (),
) -> Explanation:
    """Explain a query as if it were run at now_ms (None: times in the filter are taken for constants).

    clock_window_ms: see Recorder.
    images: whether the collection records pre- and post-images, if that is known.
    indexes_known: whether query.index_keys lists the indexes; otherwise they were not looked up.
    reasons: further reasons not to cache it, from a caller that knows the collection. Raises MalformedQueryError if mongod would
        refuse it.
    """
    findings = _findings(query)
    query, ends_by_clock = followed(query, findings, now_ms=now_ms or 0)
    plan = plan_query(query)
    refusals = _refusals(query, findings)
    until_ms: int | None = None
    if now_ms is not None:
        ends = ends_ms(findings.clock_values, started_ms=now_ms, now_ms=now_ms, window_ms=clock_window_ms)
        until_ms = min(ends, default=None)
        if until_ms is not None and until_ms <= now_ms:
            refusals[_FOLLOWS_THE_CLOCK] = None
            until_ms = None
    return Explanation(
        namespace=query.namespace,
        operation=query.operation.value,
        query_id=plan.query_id,
        match=plan.match,
        reason=plan.reason,
        index=plan.index,
        requires=required_condition(plan.access),
        window=_window(plan),
        fields=plan.relevant.fields.describe() if plan.predicate is not None else "all, of every record",
        foreign=plan.foreign_namespaces,
        foreign_writes=tuple(read.describe() for read in plan.foreign_reads),
        not_cached=tuple(f"{reason.value}: {detail}" for reason, detail in refusals | dict.fromkeys(reasons)),
        valid_until_ms=until_ms,
        kept=describe_contributors(plan),
        remark="; ".join(
            filter(
                None,
                (ends_by_clock, *_remarks(query, plan, images, indexes_known, may_follow=bool(findings.clock_values))),
            )
        )
        or None,
    )


def _window(plan: QueryPlan) -> str:
    query = plan.query
    if plan.result is Result.RECORDS:
        named = plan.window is Window.NONE and plan.at_most is not None
        window = _WINDOWS[plan.window, bool(query.sort)] + (_BY_ID if named else "")
        return window.format(limit=query.limit, most=plan.at_most)
    return _CONTENT[plan.result].format(key=query.distinct_key)


def _remarks(
    query: Query, plan: QueryPlan, images: bool | None, indexes_known: bool, *, may_follow: bool
) -> Iterator[str]:
    if may_follow:
        yield _HIDDEN_INPUT
    if may_be_compared(query) and (plan.match == "widened" or plan.at_most is None):
        yield _RECHECKED
    if plan.predicate is None:
        if searches(plan.query) and plan.query.text_index is None:
            yield _TEXT_INDEX
        return
    if (plan.result is not Result.RECORDS or plan.window is Window.OFFSET) and not images:
        if plan.at_most is None:
            yield _BEFORE_IMAGES
    elif plan.window is Window.BOUNDARY and all(path != "_id" for path, _ in plan.query.sort):
        yield _TIES
    if plan.index_order.is_open and not indexes_known:
        yield _INDEXES


def _findings(query: Query) -> Findings:
    findings = Findings()
    for part in (query.filter, query.projection, query.pipeline, query.let):
        snapshot(part, findings, lambda: 4)
    return findings


def _refusals(query: Query, findings: Findings) -> dict[Reason, None]:
    """Return the reasons for which capture would refuse a response that ran this query, in order, without repetitions."""
    reasons = dict.fromkeys(findings.reasons)
    if query.operation is Operation.AGGREGATE:
        reasons |= dict.fromkeys(aggregation.refusals(query.pipeline))
    return reasons
