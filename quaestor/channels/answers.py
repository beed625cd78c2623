"""Answers of statements: a sentence, or columns and rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of one statement.

    text: for people; empty: there are rows.
    columns: names.
    rows: values, in the order of the columns.
    """

    text: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()

    def described(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        if not self.columns:
            return {"text": self.text}
        return {"columns": list(self.columns), "rows": [list(row) for row in self.rows]}


def table_of(records: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> Answer:
    """Return an answer with a row for each record."""
    return Answer(columns=tuple(columns), rows=tuple(tuple(record.get(name) for name in columns) for record in records))


def properties(record: Mapping[str, Any]) -> Answer:
    """Return an answer with a row for each property."""
    return Answer(columns=("property", "value"), rows=tuple(record.items()))


def lines(column: str, texts: Iterable[str]) -> Answer:
    """Return an answer with a row for each text."""
    return Answer(columns=(column,), rows=tuple((text,) for text in texts))
