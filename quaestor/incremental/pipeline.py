"""Maintenance of aggregation pipelines: the maintainable ones, and their plans.

    - first `$match*`
    - then any of `$match $project $addFields $set $unset $replaceRoot $replaceWith $lookup $unwind`
    - and groupings (`$sort` directly before one gives `$first`, `$last` and `$push` their order)
    - at the end `[$sort] [$skip] [$limit]`, followed by stages that only shape rows, or by a `$lookup`

`$count` and `$sortByCount` are groupings. A window over records keeps a stretch of them, also behind joins that leave the
order as it is. A window over groups, or over rows that other stages make, holds every match. Any other pipeline raises
UnsupportedQueryError with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.incremental.aggregation import GroupStage, parse_group
from quaestor.incremental.changes import Row, RowFunction, RowStage, Stage, composed
from quaestor.incremental.contributions import contributions
from quaestor.incremental.expansion import ExpansionStage, unwind
from quaestor.incremental.joining import LookupStage
from quaestor.incremental.lookup import count_of, parse_lookup, stage_of
from quaestor.incremental.maintenance import ForeignSide, Maintenance, PriorState
from quaestor.incremental.sorting import WindowRules
from quaestor.model import Document, Operation, Query
from quaestor.query import compile_query, sort_key_function
from quaestor.query.geo.near import near_of
from quaestor.query.rows import conditions, filter_of, is_row_stage, row_function
from quaestor.query.sorting import parse_sort
from quaestor.query.text.operator import with_text_index

_AFTER_LIMIT: Final = "after a $limit or $skip: its input would have to be read again at every write"


@dataclass(slots=True, eq=False)
class _Parsing:
    """State of parsing: the meaning of the stages so far.

    sort: `$sort` that only shaping stages have followed so far.
    shaping: these shaping stages.
    into: fields that joins set.
    cut: there was a `$skip` or `$limit`.
    records: rows are records, not groups or parts of records.
    group: argument of the first grouping, if no stage before it remembers rows, and its rows may come in any order.
    remembers: the first stage with memory holds whole rows, independent of the before-images.
    """

    database: str
    filters: list[Document] = field(default_factory=list)
    stages: list[Callable[[], Stage]] = field(default_factory=list)
    lookups: dict[int, ForeignSide] = field(default_factory=dict)
    into: set[str] = field(default_factory=set)
    sort: tuple[tuple[str, int], ...] | None = None
    skip: int = 0
    limit: int | None = None
    cut: bool = False
    shaping: list[RowFunction] = field(default_factory=list)
    stateful: bool = False
    remembers: bool = False
    records: bool = True
    group: Document | None = None

    @property
    def keeps_order(self) -> bool:
        """Whether the rows have the order of the records: every stage before the window only joins, beside the sorted fields."""
        joined = {path.split(".")[0] for path, _ in self.sort or ()} & self.into
        return len(self.stages) == len(self.lookups) and not joined

    def add(self, name: str, argument: Any) -> None:
        if name == "$match" and not self.stages and self.sort is None and not self.cut:
            self.filters.extend(conditions(argument))
        elif is_row_stage(name):
            self._shape(name, argument)
        elif name == "$sort":
            self._sort(argument)
        elif name in ("$skip", "$limit"):
            self._cut(name, count_of(name, argument))
        elif name == "$group":
            self._group(argument)
        elif name == "$count":
            self._count(argument)
        elif name == "$sortByCount":
            self._group({"_id": argument, "count": {"$sum": 1}})
            self._sort({"count": -1})
        elif name == "$lookup":
            self._lookup(argument)
        elif name == "$unwind":
            self._unwind(argument)
        else:
            raise UnsupportedQueryError(f"the stage {name} is not maintained")

    def _shape(self, name: str, argument: Any) -> None:
        function = row_function(name, argument)
        if self.sort is None and not self.cut:
            self.stages.append(lambda: RowStage(function))
        elif name != "$match":
            self.shaping.append(function)
        elif self.cut or self.shaping:
            raise UnsupportedQueryError(f"$match {_AFTER_LIMIT}" if self.cut else "$match behind $sort and $project")
        else:
            self.stages.append(lambda: RowStage(function))

    def _sort(self, argument: Any) -> None:
        if not isinstance(argument, Mapping) or not argument:
            raise MalformedQueryError(f"the argument of $sort must be a document with fields, not {argument!r}")
        self._settle("$sort")
        self.sort = parse_sort(argument)

    def _cut(self, name: str, count: int) -> None:
        self.cut = True
        if name == "$limit":
            self.limit = count if self.limit is None else min(count, self.limit)
        else:
            self.skip += count
            self.limit = None if self.limit is None else max(0, self.limit - count)

    def _group(self, argument: Any) -> None:
        directly = self.sort is not None and not self.shaping
        order = sort_key_function(self.sort) if directly else None
        self._settle("$group")
        grouping = parse_group(argument, order=order)
        if not self.stateful and grouping.order is None:
            self.group = argument
        self._stateful(lambda: GroupStage(grouping))
        self.records = False

    def _count(self, argument: Any) -> None:
        if not isinstance(argument, str) or not argument or argument.startswith("$") or "." in argument:
            raise MalformedQueryError(f"the argument of $count must be a field name, not {argument!r}")
        self._group({"_id": None, argument: {"$sum": 1}})
        self._shape("$project", {"_id": 0})

    def _lookup(self, argument: Any) -> None:
        join, side = parse_lookup(argument, self.database)
        if self.shaping:
            raise UnsupportedQueryError("$lookup behind $sort and a stage that shapes rows")
        if self.sort is not None and any(path.split(".")[0] == join.into for path, _ in self.sort):
            raise UnsupportedQueryError(f"$lookup into {join.into!r}, which the $sort before it reads")
        self.lookups[len(self.stages)] = side
        self.into.add(join.into.split(".")[0])
        self.remembers = self.remembers or not self.stateful
        self._stateful(lambda: LookupStage(join))

    def _unwind(self, argument: Any) -> None:
        expand = unwind(argument)
        if self.sort is not None and not self.cut:
            raise UnsupportedQueryError("$unwind behind a $sort: sort after it")
        self._settle("$unwind")
        self._stateful(lambda: ExpansionStage(expand))
        self.records = False

    def _stateful(self, make: Callable[[], Stage]) -> None:
        self.stages.append(make)
        self.stateful = True

    def _settle(self, name: str) -> None:
        """Forget the order, which has no meaning for this stage."""
        if self.cut:
            raise UnsupportedQueryError(f"{name} {_AFTER_LIMIT}")
        if self.shaping:
            function = composed(self.shaping)
            self.stages.append(lambda: RowStage(function))
            self.shaping = []
        self.sort = None


def plan_pipeline(query: Query, prior_state: PriorState) -> Maintenance:
    """Return the maintenance plan of an aggregate. Raises MalformedQueryError or UnsupportedQueryError."""
    parsing = _Parsing(query.namespace.split(".", 1)[0])
    for stage in query.pipeline:
        parsing.add(*stage_of(stage))
    filter_ = filter_of(parsing.filters)
    compiled = compile_query(with_text_index(filter_, query.text_index))
    if near_of(compiled.root) is not None:
        raise MalformedQueryError("$near is not allowed inside of a $match")
    own = Query(namespace=query.namespace, operation=Operation.FIND, filter=filter_, text_index=query.text_index)
    ordered = parsing.sort is not None or parsing.cut
    sliding = ordered and bool(parsing.limit) and parsing.keeps_order
    if sliding:
        own = replace(own, sort=by_id(parsing.sort or ()))
    if parsing.remembers or (ordered and not parsing.stateful):
        prior_state = PriorState.MEMBERSHIP
    compact = prior_state is PriorState.BEFORE_IMAGES and parsing.group is not None
    if compact and parsing.group is not None:
        own = contributions(query, parsing.group)
    present = composed(parsing.shaping)
    stateless = prior_state is PriorState.BEFORE_IMAGES and not ordered and not parsing.stateful
    return Maintenance(
        query=query,
        prior_state=prior_state,
        matches=compiled.matches,
        own=own,
        condition=filter_,
        stages=tuple(parsing.stages),
        lookups=parsing.lookups,
        window=_window(parsing, present) if ordered else None,
        sliding=sliding,
        present=present,
        records=parsing.records,
        compact=compact,
        kept=not stateless,
    )


def _window(parsing: _Parsing, present: Callable[[Row], Any]) -> WindowRules:
    key = sort_key_function(parsing.sort or ())
    return WindowRules(sort_key=key, present=present, skip=parsing.skip, limit=parsing.limit)


def by_id(sort: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    """Return the sort with `_id` as its last key, which makes it unambiguous."""
    return sort if any(path == "_id" for path, _ in sort) else (*sort, ("_id", 1))
