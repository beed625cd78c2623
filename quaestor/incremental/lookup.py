"""Parser of `$lookup`: an equality of two fields, a pipeline on the partners, or both. Manual: $lookup.

The pipeline may filter (`$match`, with variables in `$expr`), shape rows, sort, skip and limit. `_id` makes a sort unambiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.incremental.changes import Row
from quaestor.incremental.joining import Join
from quaestor.incremental.maintenance import ForeignSide
from quaestor.model import Document, Operation, Query
from quaestor.query import compile_query, sort_key_function
from quaestor.query.expressions import compile_expression
from quaestor.query.projection import Step, Values
from quaestor.query.rows import conditions, filter_of, is_row_stage, step

_Inner = Callable[[list[Row], Values], list[Row]]
_OPTIONS: Final = frozenset({"from", "localField", "foreignField", "as", "let", "pipeline"})


def parse_lookup(argument: Any, database: str) -> tuple[Join, ForeignSide]:
    """Compile the argument of `$lookup`: the join, and the side that reads the other collection.

    database: database of the query, and of the other collection.

    Raises MalformedQueryError or UnsupportedQueryError.
    """
    if not isinstance(argument, Mapping):
        raise MalformedQueryError(f"the argument of $lookup must be a document, not {argument!r}")
    if unknown := set(argument) - _OPTIONS:
        raise MalformedQueryError(f"unknown argument of $lookup: {', '.join(sorted(unknown))}")
    source, into = argument.get("from"), argument.get("as")
    local, foreign = argument.get("localField"), argument.get("foreignField")
    if not isinstance(into, str) or not into or into.startswith("$"):
        raise MalformedQueryError(f"'as' of $lookup must name a field, not {into!r}")
    if not isinstance(source, str):
        raise UnsupportedQueryError("$lookup from a collection of another database, or from no collection")
    if (local is None) != (foreign is None) or (local is None and "pipeline" not in argument):
        raise MalformedQueryError("$lookup needs both 'localField' and 'foreignField', or a 'pipeline'")
    if "." in into:
        raise UnsupportedQueryError(f"$lookup into the embedded field {into!r}")
    for path in (local, foreign):
        if path is not None and (not isinstance(path, str) or not path or path.startswith("$")):
            raise MalformedQueryError(f"a field of $lookup must be a path without a dollar, not {path!r}")
        if path is not None and any(part.isdigit() for part in path.split(".")):
            raise UnsupportedQueryError(f"$lookup on the position in an array {path!r}")
    let = argument.get("let") or {}
    filters, inner = _pipeline(argument.get("pipeline") or [], tuple(let))
    namespace = f"{database}.{source}"
    query = Query(namespace=namespace, operation=Operation.FIND, filter=filter_of(filters))
    join = Join(
        namespace=namespace,
        into=into,
        local_field=local,
        foreign_field=foreign,
        let=tuple((name, compile_expression(expression)) for name, expression in let.items()),
        inner=inner,
    )
    return join, ForeignSide(namespace=namespace, matches=compile_query(query.filter).matches, query=query)


def _pipeline(pipeline: Sequence[Document], variables: tuple[str, ...]) -> tuple[list[Document], _Inner]:
    """Return the filters that every partner must pass, for any local row, and the further steps."""
    filters: list[Document] = []
    steps: list[_Inner] = []
    leading = True
    for stage in pipeline:
        name, argument = stage_of(stage)
        leading = leading and name == "$match"
        if leading:
            mine = [condition for condition in conditions(argument) if variables and "$expr" in condition]
            filters.extend(condition for condition in conditions(argument) if condition not in mine)
            steps.extend(_row_step(step("$match", condition, variables)) for condition in mine)
        elif is_row_stage(name):
            steps.append(_row_step(step(name, argument, variables)))
        elif name == "$sort":
            steps.append(_sorted(sort_key_function(argument, by_id=True)))
        elif name in ("$skip", "$limit"):
            steps.append(_cut(name, count_of(name, argument)))
        else:
            raise UnsupportedQueryError(f"{name} in the pipeline of a $lookup")

    def inner(rows: list[Row], values: Values) -> list[Row]:
        for apply in steps:
            rows = apply(rows, values)
        return rows

    return filters, inner


def stage_of(stage: Any) -> tuple[str, Any]:
    """Return name and argument of a stage. Raises MalformedQueryError."""
    if not isinstance(stage, Mapping) or len(stage) != 1:
        raise MalformedQueryError(f"a pipeline stage must be a document with one field, not {stage!r}")
    name, argument = next(iter(stage.items()))
    return name, argument


def count_of(name: str, argument: Any) -> int:
    """Return the argument of `$skip` or `$limit`. Raises MalformedQueryError."""
    least = 1 if name == "$limit" else 0
    if isinstance(argument, bool) or not isinstance(argument, int | float) or argument != int(argument):
        raise MalformedQueryError(f"the argument of {name} must be a whole number, not {argument!r}")
    if argument < least:
        raise MalformedQueryError(f"the argument of {name} must be at least {least}, not {argument!r}")
    return int(argument)


def _row_step(row_step: Step) -> _Inner:
    def apply(rows: list[Row], values: Values) -> list[Row]:
        return [after for row in rows if (after := row_step(row, values)) is not None]

    return apply


def _sorted(key: Callable[[Row], Any]) -> _Inner:
    return lambda rows, values: sorted(rows, key=key)


def _cut(name: str, count: int) -> _Inner:
    if name == "$skip":
        return lambda rows, values: rows[count:]
    return lambda rows, values: rows[:count]
