"""Bodies of statements: one SELECT each, read by sqlglot; errors have their places in the whole text."""

from __future__ import annotations

import logging
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from quaestor.channels.statements.model import Body

DIALECT: Final = "duckdb"
MOST_CHARACTERS: Final = 64 * 1024
MOST_PARTS: Final = 10_000
MOST_LEVELS: Final = 200
"""Limits of a query: its length, the parts of its tree, and the levels of the tree."""
_EXPECTED: Final = ("one SELECT, or SELECTs joined by UNION",)


def query_of(body: Body) -> exp.Query:
    """Return the tree of a body. Raises StatementError for anything but one query."""
    if len(body.text) > MOST_CHARACTERS:
        raise body.error(1, 1, f"the query has {len(body.text)} characters, at most {MOST_CHARACTERS} are allowed")
    logger = logging.getLogger("sqlglot")
    level = logger.level
    logger.setLevel(logging.ERROR)  # a command that is no query is refused below, not logged
    try:
        trees = [tree for tree in sqlglot.parse(body.text, read=DIALECT) if tree is not None]
        written = [tree.sql(DIALECT) for tree in trees]
    except ParseError as error:
        fault = error.errors[0] if error.errors else {}
        line, column = int(fault.get("line") or 0), int(fault.get("col") or 0)
        highlighted = str(fault.get("highlight") or "")
        start = max(1, column - max(0, len(highlighted) - 1))
        raise body.error(
            line, start, f"{_reason(str(fault.get('description') or error))} near {highlighted!r}"
        ) from error
    except SqlglotError as error:
        raise body.error(1, 1, "the query has a string or comment that does not end", ("its end",)) from error
    except (RecursionError, ValueError) as error:
        raise body.error(1, 1, f"the query is nested too deeply, or has a value out of range: {error}") from error
    finally:
        logger.setLevel(level)
    if len(trees) != 1 or not isinstance(trees[0], exp.Query) or not written[0]:
        raise body.error(1, 1, "the body is not one query", _EXPECTED)
    _limit(body, trees[0])
    return trees[0]


def _reason(description: str) -> str:
    """Return the parser's reason without the names of its classes."""
    if "<class" in description:
        return "a part of the query is missing or misplaced"
    return description.split(" but got")[0].split(" / ")[0].lower()


def _limit(body: Body, tree: exp.Query) -> None:
    count = 0
    level: list[exp.Expr] = [tree]
    for _ in range(MOST_LEVELS):
        count += len(level)
        level = [part for parent in level for part in parent.iter_expressions()]
        if count > MOST_PARTS:
            raise body.error(1, 1, f"the query has more than {MOST_PARTS} parts")
        if not level:
            return
    raise body.error(1, 1, f"the query is nested too deeply: more than {MOST_LEVELS} levels")
