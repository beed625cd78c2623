"""`$trim`, `$ltrim`, `$rtrim`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.forms import compiled_member, members_of
from quaestor.query.expressions.kinds import is_nullish, is_string, kind_of
from quaestor.query.expressions.nodes import Compiled, Operator, Scope, call

WHITESPACE: Final = "\0\t\n\v\f\r \xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B)))
"""Unlike Python's set: without line and paragraph separators, with the null character."""


def _trim(strip: Callable[[str, str], str]) -> Operator:
    def build(name: str, operand: Any, scope: Scope) -> Compiled:
        members = members_of(
            name,
            operand,
            required=("input",),
            optional=("chars",),
            missing="{name} requires an '{field}' field",
            unknown="{name} found an unknown argument: {field}",
            not_object="{name} only supports an object as an argument, found {kind}",
        )
        has_characters = "chars" in members

        def trim(text: Any, characters: Any) -> Any:
            if is_nullish(text):
                return None
            if not is_string(text):
                raise ExpressionError(f"{name} requires its input to be a string, got {text} instead.")
            if not has_characters:
                return strip(text, WHITESPACE)
            if is_nullish(characters):
                return None
            if not is_string(characters):
                raise ExpressionError(
                    f"{name} requires 'chars' to be a string, got type {kind_of(characters)} instead."
                )
            return strip(text, characters) if characters else text

        operands = [compiled_member(members, field, scope) for field in ("input", "chars")]
        return call(trim, operands, scope, deciding=1)

    return build


OPERATORS: Final[Mapping[str, Operator]] = {
    "$trim": _trim(str.strip),
    "$ltrim": _trim(str.lstrip),
    "$rtrim": _trim(str.rstrip),
}
