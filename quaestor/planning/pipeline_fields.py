"""Paths of a record that a pipeline's result can depend on: the paths that its stages read.

Sound, because paths are only ever added: every path that an expression reads counts, in any stage, whether or not its value is
used later. Computed, renamed or replaced fields on the way therefore do not matter. A field is left out only if no stage
reads it after a stage that closes the record. Such stages are a `$group` and its kin, or a `$project` that includes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from bson.decimal128 import Decimal128

from quaestor.errors import QueryError
from quaestor.model import Document
from quaestor.planning.filter_fields import filter_paths
from quaestor.query.ast import Node
from quaestor.query.compiled import compile_query
from quaestor.query.expressions import field_paths

_WHOLE: Final = ""
_SWITCHES: Final = (bool, int, float)


class _UnknownError(Exception):
    """A stage that may read anything."""


def pipeline_paths(stages: Iterable[Document], root: Node) -> frozenset[str] | None:
    """Return the dotted paths that matter to the result of a pipeline; None if the whole record may.

    stages: the stages after the leading `$match`.
    root: its filter.

    O(size of the pipeline). Never raises.
    """
    try:
        read = _filter(root)
        return frozenset(read) if _walk(stages, read) else None
    except (_UnknownError, QueryError, ValueError, AttributeError, TypeError, KeyError):
        return None


def _walk(stages: Iterable[Document], read: set[str], *, ordered: bool = False) -> bool:
    """Collect the paths that the stages read. Returns whether nothing else of the record can show at the end."""
    closed = False
    for stage in stages:
        ((name, operand),) = stage.items()
        if name == "$facet":
            branches = [_walk(branch, read, ordered=ordered) for branch in operand.values()]
            return closed or all(branches)
        if name in _GROUPING:
            _GROUPING[name](operand, read, closed)
            return True
        if name in ("$limit", "$skip"):
            if not ordered:
                raise _UnknownError("some records in an order that an index decides")
            continue
        ordered = ordered or name == "$sort"
        if name == "$project":
            closed = _project(operand, read, closed) or closed
        elif name in _READING:
            _READING[name](operand, read, closed)
        else:
            raise _UnknownError(name)
    return closed


def _expression(expression: Any, read: set[str], closed: bool) -> None:
    paths = field_paths(expression)
    if _WHOLE in paths and not closed:
        raise _UnknownError("the whole record")
    read.update(paths - {_WHOLE})


def _filter(root: Node) -> set[str]:
    paths = filter_paths(root)
    if paths is None:
        raise _UnknownError("a filter on the whole record")
    return set(paths)


def _match(condition: Any, read: set[str], closed: bool) -> None:
    read |= _filter(compile_query(condition).root)


def _sort(order: Any, read: set[str], closed: bool) -> None:
    if not all(isinstance(direction, _SWITCHES) for direction in order.values()):
        raise _UnknownError("an order by score")
    read.update(order)


def _unwind(operand: Any, read: set[str], closed: bool) -> None:
    path = operand["path"] if isinstance(operand, Mapping) else operand
    read.add(path.removeprefix("$"))


def _set(fields: Any, read: set[str], closed: bool) -> None:
    for value in fields.values():
        _expression(value, read, closed)


def _unset(fields: Any, read: set[str], closed: bool) -> None:
    """Read nothing: a hidden field that shows nevertheless is read by another stage."""


def _replace(operand: Any, read: set[str], closed: bool) -> None:
    _expression(operand["newRoot"], read, closed)


def _lookup(operand: Any, read: set[str], closed: bool) -> None:
    """Add the paths that a `$lookup` reads of this record; its reads of the other collection are foreign reads."""
    if "localField" in operand:
        read.add(operand["localField"])
    for value in operand.get("let", {}).values():
        _expression(value, read, closed)


def _graph_lookup(operand: Any, read: set[str], closed: bool) -> None:
    _expression(operand["startWith"], read, closed)


def _union_with(operand: Any, read: set[str], closed: bool) -> None:
    """Read nothing: `$unionWith` only adds records of the other collection."""


def _project(projection: Any, read: set[str], closed: bool) -> bool:
    """Return whether the projection includes, so that only the named fields remain."""
    projection = dict(_flat(projection, ""))
    switches = {path: value for path, value in projection.items() if isinstance(value, _SWITCHES)}
    hides = [path for path, value in switches.items() if not value]
    includes = len(switches) < len(projection) or any(value for value in switches.values())
    if not includes:
        return False
    if any(path != "_id" for path in hides):
        raise _UnknownError("a projection of both kinds")
    for path, value in projection.items():
        if path in hides:
            continue
        read.add(path)
        if path not in switches:
            _expression(value, read, closed)
    return True


def _flat(projection: Mapping[str, Any], parent: str) -> Iterator[tuple[str, Any]]:
    """Iterate over switches by path: `{a: {b: 1}}` is `{"a.b": 1}`."""
    for name, value in projection.items():
        path = f"{parent}{name}"
        if isinstance(value, Mapping) and not next(iter(value), "$").startswith("$"):
            yield from _flat(value, f"{path}.")
        elif isinstance(value, Decimal128):
            raise _UnknownError("a switch of a rare type")
        else:
            yield path, value


_SIMPLE: Final = frozenset(
    {
        "$addToSet",
        "$avg",
        "$first",
        "$last",
        "$max",
        "$mergeObjects",
        "$min",
        "$push",
        "$stdDevPop",
        "$stdDevSamp",
        "$sum",
    }
)
_OF_SEVERAL: Final = frozenset({"$firstN", "$lastN", "$maxN", "$minN", "$top", "$topN", "$bottom", "$bottomN"})


def _accumulators(fields: Any, read: set[str], closed: bool) -> None:
    for value in fields.values():
        ((accumulator, argument),) = value.items()
        if accumulator in _SIMPLE:
            _expression(argument, read, closed)
        elif accumulator in _OF_SEVERAL:
            for name, part in argument.items():
                if name == "sortBy":
                    _sort(part, read, closed)
                else:
                    _expression(part, read, closed)
        elif accumulator != "$count":
            raise _UnknownError(accumulator)


def _group(operand: Any, read: set[str], closed: bool) -> None:
    _expression(operand.get("_id"), read, closed)
    _accumulators({name: value for name, value in operand.items() if name != "_id"}, read, closed)


def _bucket(operand: Any, read: set[str], closed: bool) -> None:
    _expression(operand["groupBy"], read, closed)
    _accumulators(operand.get("output", {}), read, closed)


_OF_ONE: Final = frozenset(
    {"$expMovingAvg", "$covariancePop", "$covarianceSamp", "$shift", "$derivative", "$integral", "$linearFill", "$locf"}
)
_OF_NOTHING: Final = frozenset({"$rank", "$denseRank", "$documentNumber", "$count"})


def _window_fields(operand: Any, read: set[str], closed: bool) -> None:
    _expression(operand.get("partitionBy"), read, closed)
    _sort(operand.get("sortBy", {}), read, closed)
    for value in operand["output"].values():
        for name, argument in value.items():
            if name in _OF_ONE and isinstance(argument, Mapping):
                for part in [argument] if next(iter(argument)).startswith("$") else argument.values():
                    _expression(part, read, closed)
            elif name in _OF_ONE:
                _expression(argument, read, closed)
            elif name not in _OF_NOTHING and name != "window":
                _accumulators({"": {name: argument}}, read, closed)


def _fill(operand: Any, read: set[str], closed: bool) -> None:
    _expression(operand.get("partitionBy"), read, closed)
    _sort(operand.get("sortBy", {}), read, closed)
    read.update(operand.get("partitionByFields", ()))
    for path, value in operand["output"].items():
        read.add(path)
        _expression(value.get("value"), read, closed)


def _densify(operand: Any, read: set[str], closed: bool) -> None:
    read.update((operand["field"], *operand.get("partitionByFields", ())))


def _count(operand: Any, read: set[str], closed: bool) -> None:
    """Read nothing: `$count` depends on the number of records alone."""


_Reader = Callable[[Any, set[str], bool], None]
_READING: Final[Mapping[str, _Reader]] = {
    "$match": _match,
    "$sort": _sort,
    "$unwind": _unwind,
    "$set": _set,
    "$addFields": _set,
    "$unset": _unset,
    "$replaceRoot": _replace,
    "$replaceWith": lambda operand, read, closed: _expression(operand, read, closed),
    "$lookup": _lookup,
    "$graphLookup": _graph_lookup,
    "$unionWith": _union_with,
    "$setWindowFields": _window_fields,
    "$fill": _fill,
    "$densify": _densify,
}
_GROUPING: Final[Mapping[str, _Reader]] = {
    "$group": _group,
    "$sortByCount": _expression,
    "$bucket": _bucket,
    "$bucketAuto": _bucket,
    "$count": _count,
}
