"""Values of statements: constants, and values that are bound under a name. No value is ever text of a query."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Final

from lark import Token, Tree

from quaestor.channels.statements.model import Bound, Point, Value

_LEAST, _MOST = -(2**63), 2**63 - 1
_WORDS: Final = {"true": True, "false": False, "null": None}


def unquoted(text: str) -> str:
    """Return the characters of a quoted string; a doubled quote is one."""
    return text[1:-1].replace(text[0] * 2, text[0])


def value_of(tree: Tree[Token]) -> Value:
    """Return the value of a tree that is no list. Raises ValueError."""
    token = tree.children[-1]
    match tree.data:
        case "string":
            return unquoted(str(token))
        case "signed":
            return signed_number(str(token))
        case "word":
            return _WORDS[str(token).lower()]
        case "bound":
            return Bound(str(token)[1:])
        case "point":
            x, y = (signed_number(str(part.children[0])) for part in tree.children if isinstance(part, Tree))
            return Point(float(x), float(y))
        case _:
            assert isinstance(token, Tree)
            return instant_of_text(unquoted(str(token.children[0])))


def signed_number(text: str) -> int | float:
    """Return a number. Raises ValueError if no bigint and no double holds it."""
    if len(text) > 64:
        raise ValueError("a number has at most 64 characters")
    if text.lstrip("+-").isdigit():
        if not _LEAST <= (number := int(text)) <= _MOST:
            raise ValueError("the number is out of the range of bigint; write it with a point, or as a string")
        return number
    if not math.isfinite(value := float(text)):
        raise ValueError("the number is out of the range of double")
    return value


def instant_of_text(text: str) -> datetime:
    """Return the instant of a text in ISO 8601; without an offset it is UTC. Raises ValueError."""
    try:
        when = datetime.fromisoformat(text)
        return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text[:40]!r} is no instant in ISO 8601; write 2026-11-28T12:00:00Z") from error


def value_text(value: Value) -> str:
    """Return a value as a statement writes it."""
    match value:
        case None | bool():
            return json.dumps(value)
        case Bound(name):
            return f"${name}"
        case Point(x, y):
            return f"point({x!r}, {y!r})"
        case datetime():
            return f"datetime({quoted(value.isoformat())})"
        case str():
            return quoted(value)
        case tuple():
            return f"[{', '.join(map(value_text, value))}]"
        case _:
            return repr(value)


def quoted(text: str) -> str:
    """Return a string with its quotes."""
    return "'" + text.replace("'", "''") + "'"
