"""The forms of operands, each a function that makes an `Operator` from a plain function on values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

from quaestor.errors import MalformedQueryError
from quaestor.query.expressions.kinds import kind_of
from quaestor.query.expressions.nodes import ABSENT, Compiled, Operator, Scope, call, lazily

Function = Callable[..., Any]
"""Takes the values of its operands, one argument each."""

Fold = Callable[[Iterable[Any]], Any]
"""Takes the values of its operands one by one: operands after the deciding value are not evaluated."""


def arguments_of(operand: Any, scope: Scope) -> list[Compiled]:
    """Compile an operand list, or a single operand that was written without brackets."""
    members = operand if isinstance(operand, list) else [operand]
    return [scope.compile(member) for member in members]


def fixed(count: int, function: Function, *, named: bool = False, deciding: int = 0) -> Operator:
    """Return an operator with exactly count operands.

    named: function takes the operator's name first, for its messages.
    deciding: see `call`.
    """

    def build(name: str, operand: Any, scope: Scope) -> Compiled:
        operands = check_exactly(name, arguments_of(operand, scope), count)
        return call(partial(function, name) if named else function, operands, scope, deciding=deciding)

    return build


def ranged(least: int, most: int, function: Function, *, named: bool = False, deciding: int = 0) -> Operator:
    """Return an operator with between least and most operands; absent ones are not passed.

    deciding: see `call`.
    """

    def build(name: str, operand: Any, scope: Scope) -> Compiled:
        operands = arguments_of(operand, scope)
        check_count(name, len(operands), least, most)
        return call(partial(function, name) if named else function, operands, scope, deciding=deciding)

    return build


def check_exactly(name: str, operands: Sequence[Compiled], count: int) -> Sequence[Compiled]:
    """Return the operands. Raises MalformedQueryError unless there are count of them."""
    if len(operands) != count:
        raise MalformedQueryError(f"Expression {name} takes exactly {count} arguments. {len(operands)} were passed in.")
    return operands


def check_count(name: str, count: int, least: int, most: int) -> None:
    """Refuse a number of operands: raises MalformedQueryError unless count lies between least and most."""
    if not least <= count <= most:
        raise MalformedQueryError(
            f"Expression {name} takes at least {least} arguments, and at most {most}, but {count} were passed in."
        )


def variadic(function: Fold) -> Operator:
    """Return an operator with any number of operands."""

    def build(name: str, operand: Any, scope: Scope) -> Compiled:
        return lazily(function, arguments_of(operand, scope), scope)

    return build


def associative(function: Fold, *, commutative: bool, alone: bool = True) -> Operator:
    """Return an operator with any number of operands. Nested uses are flattened and constants folded, in mongod's order.

    That order shows in the result: `{$add: ["$a", 2147483647, 1]}` adds a long to a. Of a commutative operator the
    constants come last, of another only neighbours are folded.

    alone: a use with a single operand is treated the same.
    """

    def build(name: str, operand: Any, scope: Scope) -> Compiled:
        written = arguments_of(operand, scope)
        if len(written) == 1 and not alone:
            return lazily(function, written, scope)
        operands: list[Compiled] = []
        for part in written:
            operands += part.terms[1] if part.terms is not None and part.terms[0] == name else (part,)
        if all(part.is_constant for part in operands):
            return lazily(function, operands, scope)
        if commutative:
            operands.sort(key=lambda part: part.is_constant)
        merged = tuple(_merged(function, operands, scope))
        return replace(lazily(function, merged, scope), terms=(name, merged))

    return build


def _merged(function: Fold, operands: Sequence[Compiled], scope: Scope) -> Iterator[Compiled]:
    for is_constant, run in groupby(operands, key=lambda part: part.is_constant):
        members = list(run)
        if is_constant and len(members) > 1:
            yield lazily(function, members, scope)
        else:
            yield from members


def ordered(make: Callable[[Scope], Function], form: Callable[[Function], Operator]) -> Operator:
    """Return an operator whose function depends on the order of values: made anew for each compilation."""

    def build(name: str, operand: Any, scope: Scope) -> Compiled:
        return form(make(scope))(name, operand, scope)

    return build


def members_of(
    name: str,
    operand: Any,
    *,
    required: Sequence[str],
    optional: Sequence[str] = (),
    missing: str = "Missing '{field}' parameter to {name}",
    unknown: str = "Unrecognized parameter to {name}: {field}",
    not_object: str = "{name} only supports an object as its argument",
) -> Mapping[str, Any]:
    """Return the named arguments as written. Raises MalformedQueryError, in mongod's words where they are given."""
    if kind_of(operand) != "object":
        raise MalformedQueryError(not_object.format(name=name, kind=kind_of(operand)))
    for field in operand:
        if field not in required and field not in optional:
            raise MalformedQueryError(unknown.format(name=name, field=field))
    for field in required:
        if field not in operand:
            raise MalformedQueryError(missing.format(name=name, field=field))
    members: Mapping[str, Any] = operand
    return members


def compiled_member(members: Mapping[str, Any], field: str, scope: Scope) -> Compiled:
    """Return the compiled member; ABSENT if it was not written."""
    return scope.compile(members[field]) if field in members else ABSENT
