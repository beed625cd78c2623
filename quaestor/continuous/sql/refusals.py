"""Refusals of continuous queries: each names line, column, reason and remedy."""

from __future__ import annotations

from sqlglot import exp

from quaestor.errors import QueryError


class QueryRefusedError(QueryError):
    """Error of a continuous query that has no exact meaning at every instant, or is not SQL.

    line: in the text, from 1; 0: unknown.
    column: in the line, from 1; 0: unknown.
    reason: the fault, with the part of the text.
    remedy: the change that makes the query acceptable.
    """

    def __init__(self, line: int, column: int, reason: str, remedy: str) -> None:
        place = f"line {line}, column {column}: " if line else ""
        super().__init__(f"{place}{reason}; {remedy}")
        self.line = line
        self.column = column
        self.reason = reason
        self.remedy = remedy


class UnknownTableError(QueryRefusedError):
    """Error of a query over a table that does not exist, or not yet."""


def refusal(node: exp.Expr, reason: str, remedy: str) -> QueryRefusedError:
    """Return the error of a refusal at the place of a part of the query."""
    line, column = place_of(node)
    return QueryRefusedError(line, column, reason, remedy)


def place_of(node: exp.Expr) -> tuple[int, int]:
    """Return line and column of the first word of a part, or of the part around it, each from 1; (0, 0): unknown."""
    around: exp.Expr | None = node
    while around is not None:
        places = [
            (part.meta["line"], part.meta["col"] - (part.meta["end"] - part.meta["start"]))
            for part in around.walk()
            if "line" in part.meta
        ]
        if places:
            return min(places)
        around = around.parent
    return 0, 0
