"""Foreign reads of a pipeline: the records that `$lookup`, `$graphLookup` and `$unionWith` bring in, and their visible fields.

A stage's own pipeline begins with filters that no variable of the outer record decides: a record that passes none of them never
matters. The visible fields are found as for the pipeline's own records (pipeline_fields.py). The search goes through the stage's
pipeline, and then through the following stages, where a joined record lies below `as`. Single fields are distinguished only where
the order of reading the other collection cannot show: an index may decide that order by any field. A stage that is not understood
counts whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from quaestor.errors import QueryError
from quaestor.model import Document, Query
from quaestor.planning.collation import without_order_of_strings
from quaestor.planning.followed_query import views_of
from quaestor.planning.hidden_types import hidden_type
from quaestor.planning.index_order import leaves_order_open
from quaestor.planning.pipeline_fields import pipeline_paths
from quaestor.planning.relevant_fields import ALL, Fields, fields_of_paths
from quaestor.query import aggregation
from quaestor.query.compiled import CompiledQuery, compile_query

_READING: Final = frozenset({"$lookup", "$graphLookup", "$unionWith"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRead:
    """Records of one collection that one stage of a pipeline reads.

    namespace: of the records.
    condition: the filter that they pass; {} for all of them.
    fields: their fields that matter to the result.
    predicate: the condition, compiled.
    """

    namespace: str
    condition: Document = field(default_factory=dict)
    fields: Fields = ALL
    predicate: CompiledQuery = field(default_factory=lambda: compile_query({}), compare=False, repr=False)

    def describe(self) -> str:
        """Return a description of the writes that count, for people."""
        if not self.condition and self.fields == ALL:
            return f"every write to {self.namespace}"
        matching = f" that match {self.condition!r}" if self.condition else ""
        touched = "" if self.fields == ALL else f", of their fields: {self.fields.describe()}"
        return f"records of {self.namespace}{matching}{touched}"


def foreign_reads(query: Query) -> tuple[ForeignRead, ...]:
    """Return the reads of a pipeline besides its own records; a collection occurs several times if several stages read it.

    O(size of the pipeline, squared). Never raises: every collection in the pipeline is included, as a whole if necessary.
    """
    database = query.namespace.split(".", 1)[0]
    names = sorted(aggregation.foreign_namespaces(query.pipeline, database))
    if not names:
        return ()
    if views := views_of(query):
        return _below_views(views, names)
    try:
        reads = tuple(_Walk(query, database).reads(query.pipeline, ()))
    except (QueryError, ValueError, TypeError, AttributeError, KeyError, IndexError, RecursionError):
        reads = ()
    stages = sum(name in _READING for name, _ in aggregation.stages(query.pipeline))
    if len(reads) != stages or sorted({read.namespace for read in reads}) != names:
        return tuple(ForeignRead(namespace=name) for name in names)
    return reads


def _below_views(views: Iterable[Document], names: Sequence[str]) -> tuple[ForeignRead, ...]:
    """Return the reads of a pipeline that reads views: every write to a collection below them counts."""
    below = {view["view"]: view["reads"] for view in views}
    reads = {namespace for name in names for namespace in below.get(name, (name,))}
    return tuple(ForeignRead(namespace=name) for name in sorted(reads))


class _Walk:
    """Walk through the stages of one query's pipeline."""

    def __init__(self, query: Query, database: str) -> None:
        self._query = query
        self._database = database

    def reads(self, stages: Sequence[Document], following: Sequence[Document]) -> Iterator[ForeignRead]:
        """Iterate over the reads of some stages. following: the stages that the records go through after these."""
        for position, stage in enumerate(stages):
            ((name, operand),) = stage.items()
            rest = (*stages[position + 1 :], *following)
            if name == "$facet":
                for branch in operand.values():
                    yield from self.reads(branch, ())
            elif name == "$unionWith":
                yield self._union(operand, rest)
                if isinstance(operand, Mapping):
                    yield from self.reads(operand.get("pipeline") or (), rest)
            elif name == "$lookup":
                yield self._lookup(operand, rest)
                yield from self.reads(operand.get("pipeline") or (), ())
            elif name == "$graphLookup":
                yield self._graph(operand, rest)

    def _union(self, operand: Any, rest: Sequence[Document]) -> ForeignRead:
        inner = _Inner.of(operand.get("pipeline") if isinstance(operand, Mapping) else None, frozenset())
        stages = (*inner.stages, *rest)
        return self._read(
            "$unionWith", operand, inner.conditions, self._shown(stages), ordered=self._order_hidden(stages)
        )

    def _lookup(self, operand: Any, rest: Sequence[Document]) -> ForeignRead:
        inner = _Inner.of(operand.get("pipeline"), frozenset(operand.get("let") or ()))
        shown = None if inner.opaque else self._shown(inner.stages)
        if shown is None and not inner.opaque and not inner.reshapes:
            shown = self._below(operand["as"], inner.stages, rest)
        if shown is not None and "foreignField" in operand:
            shown |= {operand["foreignField"]}
        by_id = operand.get("foreignField") == "_id" and not inner.stages
        ordered = by_id or self._order_hidden(inner.stages) or self._unwound(operand["as"], rest)
        return self._read("$lookup", operand, inner.conditions, shown, ordered=ordered)

    def _graph(self, operand: Any, rest: Sequence[Document]) -> ForeignRead:
        """Return the read of a `$graphLookup`. Records found by `_id` come in an order that no field decides."""
        restriction = operand.get("restrictSearchWithMatch")
        conditions = [restriction] if restriction else []
        shown = self._below(operand["as"], [{"$match": restriction}] if restriction else [], rest)
        if shown is not None:
            shown |= {operand["connectFromField"], operand["connectToField"]}
        return self._read("$graphLookup", operand, conditions, shown, ordered=operand["connectToField"] == "_id")

    def _read(
        self, name: str, operand: Any, conditions: Iterable[Document], shown: frozenset[str] | None, *, ordered: bool
    ) -> ForeignRead:
        (namespace,) = aggregation.foreign_namespaces([{name: _alone(operand)}], self._database)
        condition, predicate = self._condition(conditions)
        return ForeignRead(
            namespace=namespace,
            condition=condition,
            fields=fields_of_paths(shown) if ordered else ALL,
            predicate=predicate,
        )

    def _condition(self, conditions: Iterable[Document]) -> tuple[Document, CompiledQuery]:
        """Return the parts of these filters that can be judged here."""
        collation = self._query.collation
        kept: list[Document] = []
        for part in _parts(conditions):
            judged = part if collation is None else without_order_of_strings(part, collation)
            try:
                if judged and hidden_type(compile_query(judged).root) is None:
                    kept.append(judged)
            except QueryError:
                continue
        whole = dict(aggregation.all_of(kept))
        return whole, compile_query(whole)

    def _shown(self, stages: Sequence[Document]) -> frozenset[str] | None:
        """Return the paths that these stages read of a record, if nothing else of it remains at their end."""
        return pipeline_paths(stages, compile_query({}).root)

    def _order_hidden(self, stages: Sequence[Document]) -> bool:
        """Whether the order of the records that enter these stages cannot show after them."""
        rest = [stage for stage in stages if "$match" not in stage]
        if rest and "_id" in rest[0].get("$sort", ()):
            return True
        return bool(rest) and not leaves_order_open(self._query, stages)

    def _unwound(self, name: str, stages: Sequence[Document]) -> bool:
        """Whether joined records are unwound at once, and then in no order that shows."""
        return bool(stages) and _unwinds(name, stages[0]) and not leaves_order_open(self._query, stages)

    def _below(self, name: str, stages: Sequence[Document], rest: Sequence[Document]) -> frozenset[str] | None:
        """Return the paths that are read of a joined record, if the following stages show no more of it.

        stages: of the lookup's own pipeline, which leave its records as they are.
        """
        outer = self._shown(_without_unwinding(name, rest))
        inner = self._shown([*stages, {"$count": "n"}])
        if outer is None or inner is None or any(f"{name}.".startswith(f"{path}.") for path in outer):
            return None
        return inner | {path.removeprefix(f"{name}.") for path in outer if path.startswith(f"{name}.")}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inner:
    """Pipeline of a stage.

    conditions: the leading filters, without parts that variables decide.
    stages: all of it, with the variables taken for constants.
    opaque: its reads are unknown.
    reshapes: its records are not those of the collection.
    """

    conditions: tuple[Document, ...]
    stages: tuple[Document, ...]
    opaque: bool
    reshapes: bool

    @staticmethod
    def of(pipeline: Sequence[Document] | None, variables: frozenset[str]) -> _Inner:
        stages = tuple(pipeline or ())
        conditions: list[Document] = []
        for stage in stages:
            if list(stage) != ["$match"]:
                break
            conditions += [part for part in _parts([stage["$match"]]) if not _mentions(part, variables)]
        opaque = bool(variables) and any(_binds(stage, variables) for stage in stages)
        return _Inner(
            conditions=tuple(conditions),
            stages=tuple(_constant(stage, variables) for stage in stages),
            opaque=opaque,
            reshapes=any(next(iter(stage)) not in ("$match", "$sort") for stage in stages),
        )


def _alone(operand: Any) -> Any:
    """Return the operand without its own pipeline."""
    if not isinstance(operand, Mapping):
        return operand
    return {name: value for name, value in operand.items() if name != "pipeline"}


def _parts(conditions: Iterable[Document]) -> Iterator[Document]:
    """Iterate over the single conditions, all of which have to hold."""
    for condition in conditions:
        for name, operand in condition.items():
            if name == "$and":
                yield from _parts(operand)
            else:
                yield {name: operand}


def _without_unwinding(name: str, stages: Sequence[Document]) -> list[Document]:
    """Return the stages without the unwinding of joined records: it leaves them the same, and only their number shows."""
    return [stage for stage in stages if not _unwinds(name, stage)]


def _unwinds(name: str, stage: Document) -> bool:
    operand = stage.get("$unwind")
    if isinstance(operand, Mapping):
        return operand.get("path") == f"${name}" and "includeArrayIndex" not in operand
    return bool(operand == f"${name}")


def _names(text: str, variables: frozenset[str]) -> bool:
    return text.startswith("$$") and text[2:].split(".", 1)[0] in variables


def _any(value: Any, holds: Callable[[Any], bool]) -> bool:
    if holds(value):
        return True
    if isinstance(value, Mapping):
        return any(_any(member, holds) for member in value.values())
    return isinstance(value, list | tuple) and any(_any(member, holds) for member in value)


def _mentions(value: Any, variables: frozenset[str]) -> bool:
    return _any(value, lambda part: isinstance(part, str) and _names(part, variables))


def _binds(value: Any, variables: frozenset[str]) -> bool:
    """Whether an expression in the value binds, or may bind, a variable of the same name."""

    def binding(part: Any) -> bool:
        if not isinstance(part, Mapping):
            return False
        names = part.get("vars") if isinstance(part.get("vars"), Mapping) else ()
        return not variables.isdisjoint(names or ()) or (isinstance(part.get("as"), str) and part["as"] in variables)

    return not variables.isdisjoint({"this", "value"}) or _any(value, binding)


def _constant(value: Any, variables: frozenset[str]) -> Any:
    if isinstance(value, str):
        return {"$literal": None} if _names(value, variables) else value
    if isinstance(value, Mapping):
        return {name: _constant(member, variables) for name, member in value.items()}
    return [_constant(member, variables) for member in value] if isinstance(value, list | tuple) else value


__all__ = ["ForeignRead", "foreign_reads"]
