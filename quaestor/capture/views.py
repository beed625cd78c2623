"""Reads of views, rewritten onto the collections that the view's records come from. Pure.

https://www.mongodb.com/docs/manual/core/views/: mongod runs a view's pipeline first and the command's own part after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from quaestor.capture.recorder import Outcome
from quaestor.capture.snapshot import Findings, snapshot
from quaestor.model import CapturedRead, Document, Operation, Query, Reason, Uncacheable
from quaestor.planning.pipeline_shape import filter_behind
from quaestor.query import aggregation

_MAX_DEPTH = 20
"""mongod's own limit for views on views."""
_NO_RECORD: Final[Document] = {"_id": {"$in": []}}


class Kind(StrEnum):
    """Kinds of namespaces; the values are those of listCollections."""

    COLLECTION = "collection"
    VIEW = "view"
    TIME_SERIES = "timeseries"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Definition of one namespace, from listCollections.

    view_on: the namespace below a view.
    pipeline: the view's.
    collation: the default one, None for binary comparison.
    images: the collection records pre- and post-images.
    capped: the collection drops its oldest records by itself.
    """

    kind: Kind
    view_on: str = ""
    pipeline: tuple[Document, ...] = ()
    collation: Document | None = None
    images: bool = False
    capped: bool = False


Lookup = Callable[[str], Definition | None]
"""Returns the definition of a namespace; None for one that does not exist or has nothing special."""


def resolve(reads: Sequence[CapturedRead], lookup: Lookup, *, capped_deletes_reported: bool = True) -> Outcome:
    """Return the same reads on collections, with the collation that applies, and a widened read for every view in a pipeline.

    Each view on the way adds a read that no record satisfies: its registration ends when the view is redefined.

    lookup: the definition of a namespace.
    capped_deletes_reported: whether the change stream reports the records that capped collections drop.

    Reasons: a time-series collection below, a view whose pipeline no write can invalidate, or a capped collection whose
    records vanish without an event.
    """
    resolver = _Resolver(lookup, capped_deletes_reported)
    for read in reads:
        resolver.add(read)
    reads = (*resolver.reads, *resolver.defined.values())
    return Outcome(reads=reads, reasons=tuple(dict.fromkeys(resolver.reasons)))


def base_of(namespace: str, lookup: Lookup) -> str:
    """Return the collection that a namespace stands for: the end of its chain of views."""
    return _follow(namespace, lookup).base


def followed_down(namespace: str, lookup: Lookup) -> tuple[str, tuple[Document, ...]]:
    """Return the collection that a namespace stands for, and the stages of all views on the way to it."""
    chain = _follow(namespace, lookup)
    return chain.base, chain.pipeline


def is_definition(query: Query) -> bool:
    """Whether a query stands for the definition of a view, see `resolve`."""
    return query.filter == _NO_RECORD


@dataclass(frozen=True, slots=True)
class _Chain:
    base: str
    pipeline: tuple[Document, ...]
    bottom: Definition | None
    views: tuple[str, ...] = ()


def _follow(namespace: str, lookup: Lookup) -> _Chain:
    base = namespace
    pipeline: tuple[Document, ...] = ()
    views: list[str] = []
    for _ in range(_MAX_DEPTH + 1):
        definition = lookup(base)
        if definition is None or definition.kind is not Kind.VIEW:
            return _Chain(base, pipeline, definition, tuple(views))
        views.append(base)
        pipeline = definition.pipeline + pipeline
        base = definition.view_on
    return _Chain(namespace, (), Definition(kind=Kind.UNKNOWN))


@dataclass(slots=True)
class _Resolver:
    lookup: Lookup
    capped_deletes_reported: bool
    reads: list[CapturedRead] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    foreign: set[str] = field(default_factory=set)
    defined: dict[str, CapturedRead] = field(default_factory=dict)

    def add(self, read: CapturedRead) -> None:
        namespace = read.query.namespace
        chain = self._chain(namespace, read)
        query = _with_collation(read.query, self.lookup(namespace))
        if chain.base != namespace:
            if query.clock is not None:
                self.reasons.append(Reason(Uncacheable.CLOCK, f"the clock in a query on the view {namespace}"))
            query = _onto(query, chain)
            read = replace(read, asked=read.query)
        self.reads.append(replace(read, query=query))
        for source in _sources(query.pipeline, namespace):
            self._foreign(source, read, named=True)

    def _foreign(self, namespace: str, read: CapturedRead, *, named: bool) -> None:
        """Add a namespace that a pipeline reads besides its own.

        named: by the query itself; if it is a collection, planning the query finds it too.
        """
        if namespace in self.foreign:
            return
        self.foreign.add(namespace)
        chain = self._chain(namespace, read)
        if not named or chain.base != namespace:
            self.reads.append(_any_write(chain.base, read))
        for source in _sources(chain.pipeline, namespace):
            self._foreign(source, read, named=False)

    def _chain(self, namespace: str, read: CapturedRead) -> _Chain:
        chain = _follow(namespace, self.lookup)
        for view in chain.views:
            self._defined_by(view, read)
        if chain.bottom is not None and chain.bottom.kind is Kind.TIME_SERIES:
            self.reasons.append(Reason(Uncacheable.TIME_SERIES, f"{chain.base} is a time-series collection"))
        elif chain.bottom is not None and chain.bottom.kind is Kind.UNKNOWN:
            self.reasons.append(Reason(Uncacheable.VIEW, f"{namespace} leads to no collection"))
        elif chain.bottom is not None and chain.bottom.capped and not self.capped_deletes_reported:
            detail = f"{chain.base} is capped, and a server before 5.0 does not tell what it drops"
            self.reasons.append(Reason(Uncacheable.UNREADABLE, detail))
        findings = Findings()
        snapshot(list(chain.pipeline), findings, lambda: None)
        self.reasons += findings.reasons
        self.reasons += aggregation.refusals(chain.pipeline)
        return chain

    def _defined_by(self, view: str, read: CapturedRead) -> None:
        """Note a read of the view's definition, as old as the oldest read through the view."""
        known = self.defined.get(view)
        if known is None or read.read_at < known.read_at:
            query = Query(namespace=view, operation=Operation.FIND, filter=_NO_RECORD)
            self.defined[view] = replace(read, query=query, ids=None, last=None, digest=None)


def _sources(pipeline: Iterable[Document], namespace: str) -> list[str]:
    return sorted(aggregation.foreign_namespaces(list(pipeline), namespace.partition(".")[0]))


def _any_write(namespace: str, read: CapturedRead) -> CapturedRead:
    query = Query(
        namespace=namespace,
        operation=Operation.FIND,
        filter={},
        widened="read by a pipeline of another collection",
    )
    return replace(read, query=query, ids=None, last=None)


def _with_collation(query: Query, definition: Definition | None) -> Query:
    collation = query.collation
    if collation is None and definition is not None:
        collation = definition.collation
    if collation is not None and collation.get("locale") == "simple":
        collation = None
    return query if collation is query.collation else replace(query, collation=collation)


def _onto(query: Query, chain: _Chain) -> Query:
    """Return the query on the view as a query on the collection below it.

    A view that only filters shows whole records: the conditions are joined. A count or a distinct keeps its operation on a view
    that also sorts and shows fields. Other queries become aggregates.
    """
    if query.operation in (Operation.COUNT, Operation.DISTINCT) and query.let is None:
        shown = () if query.distinct_key is None else (query.distinct_key,)
        condition = filter_behind(chain.pipeline, query.filter, shown)
        if condition is not None:
            return replace(query, namespace=chain.base, filter=condition)
    conditions = [stage["$match"] for stage in chain.pipeline if list(stage) == ["$match"]]
    if len(conditions) == len(chain.pipeline) and query.operation is not Operation.AGGREGATE:
        return replace(query, namespace=chain.base, filter=aggregation.all_of([*conditions, query.filter]))
    return Query(
        namespace=chain.base,
        operation=Operation.AGGREGATE,
        filter={},
        pipeline=chain.pipeline + (query.pipeline or _as_stages(query)),
        collation=query.collation,
        let=query.let,
        widened=query.widened,
    )


def _as_stages(query: Query) -> tuple[Document, ...]:
    stages: list[dict[str, Any]] = []
    if query.filter:
        stages.append({"$match": query.filter})
    if query.sort:
        stages.append({"$sort": dict(query.sort)})
    if query.skip:
        stages.append({"$skip": query.skip})
    if query.limit:
        stages.append({"$limit": query.limit})
    if query.projection:
        stages.append({"$project": query.projection})
    if query.operation is Operation.COUNT:
        stages.append({"$group": {"_id": 1, "n": {"$sum": 1}}})
    if query.distinct_key is not None:
        stages += _distinct(query.distinct_key)
    return tuple(stages)


def _distinct(key: str) -> list[dict[str, Any]]:
    """Return the stages by which mongod executes a distinct on a view: arrays on the path count by their elements."""
    names = key.split(".")
    paths = [".".join(names[:depth]) for depth in range(1, len(names) + 1)]
    within = {path: {"$type": "object"} for path in paths[:-1]}
    return [
        *({"$unwind": {"path": f"${path}", "preserveNullAndEmptyArrays": True}} for path in paths),
        {"$match": {**within, key: {"$exists": True}}},
        {"$group": {"_id": f"${key}"}},
    ]
