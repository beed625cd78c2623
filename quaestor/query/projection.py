"""Projection of rows, by `$project` or a find: the shown, hidden and computed fields of a row.

Manual: $project; Project Fields to Return from Query. Fields below arrays are shown or hidden in every element. Fields
are computed on the first level only; computed dotted paths, `$slice`, `$elemMatch`, `$meta` and positions are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bson import Decimal128

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.model import Document
from quaestor.query.bson_order import MISSING
from quaestor.query.expressions import compile_expression
from quaestor.query.paths import as_document, is_array, is_document

Values = Mapping[str, Any] | None
"""The values of the variables around a stage, by name."""
Step = Callable[[Document, Values], Document | None]
"""A row function with variables."""
Tree = dict[str, Any]
"""Field names, each with another tree below, or None: the whole field."""

_OF_FIND_ALONE: Final = frozenset({"$slice", "$elemMatch", "$meta"})


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A parsed projection.

    on, off: paths that are switched.
    computed: paths with their expressions.
    with_id: the switch of _id; None: there is none.
    """

    on: list[str]
    off: list[str]
    computed: list[tuple[str, Any]]
    with_id: bool | None


def projection(specification: Mapping[str, Any], variables: Collection[str] = ()) -> Step:
    """Compile a projection to a function of rows. Raises MalformedQueryError or UnsupportedQueryError."""
    parsed = _parse(specification)
    if parsed.off and (parsed.on or parsed.computed):
        raise MalformedQueryError(f"a projection cannot both show and hide fields: {specification!r}")
    if parsed.on or parsed.computed or (parsed.with_id and not parsed.off):
        shown = [*parsed.on, *([] if parsed.with_id is False or _computes_id(parsed) else ["_id"])]
        return _inclusion(_tree(shown), parsed.computed, variables)
    if parsed.with_id is None and not parsed.off:
        raise MalformedQueryError("a projection must have at least one field")
    return exclusion([*parsed.off, *(["_id"] if parsed.with_id is False else [])])


def exclusion(paths: Collection[str]) -> Step:
    """Compile an `$unset` to a function that returns the row without these fields."""
    tree = _tree(paths)

    def excluded(row: Document, values: Values) -> Document | None:
        rest: Document = _without(row, tree)
        return rest

    return excluded


def _inclusion(tree: Tree, computed: list[tuple[str, Any]], variables: Collection[str]) -> Step:
    evaluations = [(name, compile_expression(expression, variables=variables)) for name, expression in computed]

    def included(row: Document, values: Values) -> Document | None:
        result: dict[str, Any] = _only(row, tree)
        for name, evaluate in evaluations:
            value = evaluate(row, values)
            if value is not MISSING:
                result[name] = value
        return result

    return included


def _parse(specification: Mapping[str, Any]) -> _Parsed:
    parsed = _Parsed([], [], [], None)
    with_id: bool | None = None
    for path, value in _flattened(specification, ""):
        _check_path(path)
        if _is_switch(value):
            on = bool(value.to_decimal()) if isinstance(value, Decimal128) else bool(value)
            if path == "_id":
                with_id = on
            else:
                (parsed.on if on else parsed.off).append(path)
        elif "." in path:
            raise UnsupportedQueryError(f"a projection that computes the embedded field {path!r}")
        else:
            parsed.computed.append((path, value))
    return _Parsed(parsed.on, parsed.off, parsed.computed, with_id)


def _flattened(specification: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in specification.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and not next(iter(value), "$").startswith("$"):
            yield from _flattened(value, f"{path}.")
            continue
        if isinstance(value, Mapping):
            if not value:
                raise MalformedQueryError(f"an empty object is not a valid value in a projection: {path!r}")
            if next(iter(value)) in _OF_FIND_ALONE:
                raise UnsupportedQueryError(f"a projection with {next(iter(value))}")
        yield path, value


def _check_path(path: str) -> None:
    if path.endswith(".$"):
        raise UnsupportedQueryError("a positional projection")
    for part in path.split("."):
        if not part or part.startswith("$"):
            raise MalformedQueryError(f"a projection cannot name the path {path!r}: empty part or leading dollar")


def _is_switch(value: Any) -> bool:
    return isinstance(value, bool | int | float | Decimal128)


def _computes_id(parsed: _Parsed) -> bool:
    return any(name == "_id" for name, _ in parsed.computed)


def _tree(paths: Collection[str]) -> Tree:
    tree: Tree = {}
    for path in paths:
        *way, last = path.split(".")
        below = tree
        for part in way:
            below = below.setdefault(part, {})
            if below is None:
                raise MalformedQueryError(f"path collision at {path!r} in a projection")
        if last in below:
            raise MalformedQueryError(f"path collision at {path!r} in a projection")
        below[last] = None
    return tree


def _only(value: Any, tree: Tree) -> Any:
    if is_array(value):
        kept = (_only(element, tree) for element in value)
        return [element for element in kept if element is not MISSING]
    if not is_document(value):
        return MISSING
    shown: dict[str, Any] = {}
    for name, member in as_document(value).items():
        if name in tree:
            part = member if tree[name] is None else _only(member, tree[name])
            if part is not MISSING:
                shown[name] = part
    return shown


def _without(value: Any, tree: Tree) -> Any:
    if is_array(value):
        return [_without(element, tree) for element in value]
    if not is_document(value):
        return value
    return {
        name: _without(member, tree[name]) if name in tree else member
        for name, member in as_document(value).items()
        if name not in tree or tree[name] is not None
    }
