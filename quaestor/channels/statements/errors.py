"""Errors of statements: each names line, column, reason and what was expected there."""

from __future__ import annotations

from quaestor.errors import QueryError


class StatementError(QueryError):
    """Error of a statement.

    line: in the text, from 1.
    column: in the line, from 1.
    reason: the fault, with the part of the text.
    expected: what the text may have at this place; empty: the reason says it.
    """

    def __init__(self, line: int, column: int, reason: str, expected: tuple[str, ...] = ()) -> None:
        wanted = f"; expected {_joined(expected)}" if expected else ""
        super().__init__(f"line {line}, column {column}: {reason}{wanted}")
        self.line = line
        self.column = column
        self.reason = reason
        self.expected = expected

    def caret(self, text: str) -> str:
        """Return the line of the text that has the fault, with a caret under the fault."""
        lines = text.split("\n")
        line = lines[self.line - 1] if self.line <= len(lines) else ""
        before = "".join("\t" if character == "\t" else " " for character in line[: self.column - 1])
        return f"{line}\n{before}^"


def _joined(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
