"""Text to a tree, and the refusals that hold for every SELECT whose rows an instant decides."""

from __future__ import annotations

from typing import Final

from sqlglot import exp, parse
from sqlglot.errors import ParseError, TokenError

from quaestor.continuous.sql.refusals import QueryRefusedError, refusal

_RANDOM: Final = frozenset(
    {"random", "rand", "uuid", "gen_random_uuid", "newid", "uuidv4", "uuidv7", "setseed", "nextval"}
)
"""Functions that give another value each time: no instant decides their rows."""
_CLOCKS: Final = {
    "age": 1, "unix_timestamp": 0, "clock_timestamp": 0, "timeofday": 0, "current_localtime": 0, "sysdatetime": 0,
    "sysutcdatetime": 0, "curdate": 0, "curtime": 0,
}  # fmt: skip
"""Functions that read the clock of the engine, with the number of their arguments then."""


def parsed(text: str, dialect: str, *, otherwise: tuple[str, str]) -> exp.Query:
    """Return the tree of one SELECT. Raises QueryRefusedError.

    otherwise: reason and remedy for a text of other or several statements.
    """
    try:
        statements = [statement for statement in parse(text, read=dialect) if statement is not None]
    except ParseError as error:
        place = error.errors[0] if error.errors else {}
        raise QueryRefusedError(
            int(place.get("line") or 0),
            int(place.get("col") or 0),
            f"the text is not SQL: {place.get('description') or error}",
            "correct the text",
        ) from error
    except TokenError as error:
        raise QueryRefusedError(1, 1, f"the text is not SQL: {error}", "close every quote and comment") from error
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise QueryRefusedError(1, 1, *otherwise)
    return statements[0]


def refuse_placeholders(tree: exp.Expr, remedy: str) -> None:
    """Raise QueryRefusedError for a parameter without a value."""
    for node in tree.find_all(exp.Placeholder, exp.Parameter):
        raise refusal(node, f"the parameter {node.sql()} has no value", remedy)


def refuse_randomness(tree: exp.Expr) -> None:
    """Raise QueryRefusedError for a function that gives another value each time."""
    for node in tree.find_all(exp.Func):
        name = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
        if name.lower() in _RANDOM or isinstance(node, exp.Rand | exp.Uuid):
            raise refusal(node, f"{name.lower()}() gives another value each time", "leave it out")
        if isinstance(node, exp.Anonymous) and _CLOCKS.get(name.lower()) == len(node.expressions):
            reason = f"{name.lower()}() reads the clock of the engine"
            raise refusal(node, reason, "compare timestamps with now()")
