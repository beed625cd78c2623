"""Conditions that follow the clock in a known way: `$$NOW` in `$expr`, and declared times, found in a command's copied fields.

A time that cannot be planned leaves the read uncacheable, for the reason `clock`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quaestor.errors import QueryError, UnsupportedQueryError
from quaestor.model import Document
from quaestor.planning.moments import DeclaredTime, Moment
from quaestor.planning.timed_conditions import TimedCondition
from quaestor.query.compiled import compile_query

_NOW: Final = "$$NOW"
_UNKNOWN: Final = "the clock outside of a filter and a leading $match"


def timed(fields: Mapping[str, Any], *, declared: bool) -> Document:
    """Return the condition of a query with moments in place of its times.

    fields: of the query, as they were copied.
    declared: the fields hold declared times. With `$$NOW` besides, two clocks would decide.

    Raises UnsupportedQueryError, with the reason, if the instants of its records cannot be known.
    """
    condition, rest = _parted(fields)
    if condition is None or _holds(rest, DeclaredTime) or _holds(rest, _NOW):
        raise UnsupportedQueryError(_UNKNOWN)
    if declared and _holds(condition, _NOW):
        raise UnsupportedQueryError("Now() beside $$NOW: two clocks")
    marked: Document = _marked(condition, within=False)
    if _holds(marked, _NOW):
        raise UnsupportedQueryError("$$NOW where it is no time of $expr")
    planned = TimedCondition(marked)
    try:
        compile_query(planned.at(0))
    except QueryError as error:
        raise UnsupportedQueryError(f"the clock beside a condition that is not matched exactly: {error}") from error
    return marked


def plain(value: Any) -> Any:
    """Return a copied value with ordinary times, as BSON holds them, in place of declared ones."""
    return _replaced(value, lambda time: time.plain().replace(tzinfo=None))


def without_times(value: Any) -> Any:
    """Return a value without its declared times."""
    return _replaced(value, lambda time: None)


def with_names(value: Any) -> Any:
    """Return a value with a text for each declared time that is the same in every run."""
    return _replaced(value, lambda time: str(tuple(time.moment)))


def _parted(fields: Mapping[str, Any]) -> tuple[Document | None, Any]:
    """Return the condition that decides which records count, and everything else."""
    pipeline = fields.get("pipeline")
    if not pipeline:
        return fields.get("filter"), {name: value for name, value in fields.items() if name != "filter"}
    others = {name: value for name, value in fields.items() if name != "pipeline"}
    return pipeline[0].get("$match"), [others, *pipeline[1:]]


def _marked(value: Any, *, within: bool) -> Any:
    """Return a condition with its moments. within: inside of `$expr`."""
    if isinstance(value, DeclaredTime):
        return value.moment.marked()
    if within and value == _NOW:
        return Moment().marked()
    if isinstance(value, Mapping):
        return {
            name: item if name == "$literal" and within else _marked(item, within=within or name == "$expr")
            for name, item in value.items()
        }
    return [_marked(item, within=within) for item in value] if isinstance(value, list | tuple) else value


def _replaced(value: Any, by: Any) -> Any:
    if isinstance(value, DeclaredTime):
        return by(value)
    if isinstance(value, Mapping):
        return {name: _replaced(item, by) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_replaced(item, by) for item in value) if type(value) in (list, tuple) else [*value]
    return value


def _holds(value: Any, wanted: Any) -> bool:
    """Whether a value holds a declared time, or a text that begins with `wanted`."""
    if isinstance(value, Mapping):
        return any(_holds(item, wanted) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_holds(item, wanted) for item in value)
    return isinstance(value, DeclaredTime) if wanted is DeclaredTime else isinstance(value, str) and value[:5] == wanted
