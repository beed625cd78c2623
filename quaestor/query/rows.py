"""Pipeline stages that map one row to one row, or filter rows: `$match`, `$project`, `$addFields` and their kin.

Manual: Aggregation Stages. `$addFields` sets fields of the first level only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.model import Document
from quaestor.query.bson_order import MISSING
from quaestor.query.compiled import compile_query
from quaestor.query.expressions import ExpressionError, compile_expression, truthy
from quaestor.query.geo.near import near_of
from quaestor.query.projection import Step, Values, exclusion, projection


def is_row_stage(name: str) -> bool:
    """Whether the stage treats every row by itself."""
    return name in _STAGES


def step(name: str, argument: Any, variables: Collection[str] = ()) -> Step:
    """Compile a row stage.

    name, argument: of the stage.
    variables: names that its expressions may use.

    Raises MalformedQueryError if mongod would refuse it, UnsupportedQueryError if it is not maintained.
    """
    return _STAGES[name](argument, variables)


def row_function(name: str, argument: Any) -> Callable[[Document], Document | None]:
    """Compile a row stage without variables."""
    compiled = step(name, argument)
    return lambda row: compiled(row, None)


def filter_of(filters: Sequence[Document]) -> Document:
    """Return one filter that holds where all of these hold."""
    some = [condition for condition in filters if condition]
    return {"$and": some} if len(some) > 1 else some[0] if some else {}


def conditions(filter_: Any) -> Iterator[Document]:
    """Iterate over the conditions of a filter, all of which must hold."""
    if not isinstance(filter_, Mapping):
        raise MalformedQueryError(f"the argument of $match must be a document, not {filter_!r}")
    for name, operand in filter_.items():
        if name == "$and" and isinstance(operand, list | tuple) and operand:
            for member in operand:
                yield from conditions(member)
        else:
            yield {name: operand}


def _match(argument: Any, variables: Collection[str]) -> Step:
    plain: list[Document] = []
    tests: list[Callable[[Document, Values], bool]] = []
    for condition in conditions(argument):
        if variables and "$expr" in condition:
            tests.append(_expression_test(condition["$expr"], variables))
        else:
            plain.append(condition)
    compiled = compile_query(filter_of(plain))
    if near_of(compiled.root) is not None:
        raise MalformedQueryError("$near is not allowed inside of a $match")
    matches = compiled.matches

    def match(row: Document, values: Values) -> Document | None:
        return row if matches(row) and all(test(row, values) for test in tests) else None

    return match


def _expression_test(expression: Any, variables: Collection[str]) -> Callable[[Document, Values], bool]:
    evaluate = compile_expression(expression, variables=variables)
    return lambda row, values: truthy(evaluate(row, values))


def _project(argument: Any, variables: Collection[str]) -> Step:
    if not isinstance(argument, Mapping):
        raise MalformedQueryError(f"the argument of $project must be a document, not {argument!r}")
    return projection(argument, variables)


def _add_fields(argument: Any, variables: Collection[str]) -> Step:
    if not isinstance(argument, Mapping) or not argument:
        raise MalformedQueryError(f"the argument of $addFields must be a document with fields, not {argument!r}")
    evaluations = []
    for name, expression in argument.items():
        if "." in name or (isinstance(expression, Mapping) and not next(iter(expression), "").startswith("$")):
            raise UnsupportedQueryError(f"$addFields sets embedded fields at {name!r}")
        evaluations.append((name, compile_expression(expression, variables=variables)))

    def add_fields(row: Document, values: Values) -> Document | None:
        result = dict(row)
        for name, evaluate in evaluations:
            value = evaluate(row, values)
            if value is MISSING:
                result.pop(name, None)
            else:
                result[name] = value
        return result

    return add_fields


def _unset(argument: Any, variables: Collection[str]) -> Step:
    paths = [argument] if isinstance(argument, str) else argument
    if not isinstance(paths, list) or not paths or not all(isinstance(path, str) and path for path in paths):
        raise MalformedQueryError(f"the argument of $unset must be a path or a list of paths, not {argument!r}")
    return exclusion(paths)


def _replace_root(argument: Any, variables: Collection[str]) -> Step:
    if not isinstance(argument, Mapping) or set(argument) != {"newRoot"}:
        raise MalformedQueryError(f"$replaceRoot takes {{newRoot: ...}}, not {argument!r}")
    return _replace_with(argument["newRoot"], variables)


def _replace_with(argument: Any, variables: Collection[str]) -> Step:
    evaluate = compile_expression(argument, variables=variables)

    def replaced(row: Document, values: Values) -> Document | None:
        value = evaluate(row, values)
        if not isinstance(value, Mapping):
            raise ExpressionError(f"'newRoot' must evaluate to an object, but it is {value!r}")
        return value

    return replaced


_STAGES: Final[Mapping[str, Callable[[Any, Collection[str]], Step]]] = {
    "$match": _match,
    "$project": _project,
    "$addFields": _add_fields,
    "$set": _add_fields,
    "$unset": _unset,
    "$replaceRoot": _replace_root,
    "$replaceWith": _replace_with,
}
