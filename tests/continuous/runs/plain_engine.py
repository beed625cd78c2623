"""Engine for tests: incremental queries that are written by hand, on a real DuckDB. No compiler is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from quaestor.continuous.engine import Evaluated, Read
from quaestor.errors import UnsupportedQueryError
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.changes import Snapshot

REMINDERS = "SELECT id, note FROM reminders WHERE ts <= due_at AND $after < due_at AND due_at <= $upto"
"""Reminders at their time (W5 of the specification)."""
UNANSWERED = """
SELECT m.id FROM messages m
WHERE $after < m.ts + INTERVAL 14 DAY AND m.ts + INTERVAL 14 DAY <= $upto
AND NOT EXISTS (SELECT 1 FROM replies r WHERE r.message = m.id AND r.ts <= m.ts + INTERVAL 14 DAY)
"""
"""Messages without a reply for two weeks (W7)."""
EXPIRING = "SELECT id FROM offers WHERE ts <= expires AND $after < expires AND expires <= $upto"


@dataclass(frozen=True)
class PlainQuery:
    """Incremental query with the parameters $after and $upto."""

    text: str
    tables: tuple[str, ...]
    catalogue: Catalogue
    shape: str = "plain"
    repeats_within: int | None = None

    def rows(self, after: int, upto: int, snapshots: Mapping[str, Snapshot]) -> Evaluated:
        """See PreparedQuery."""
        connection = duckdb.connect()
        try:
            connection.execute("SET TimeZone = 'UTC'")
            for name in self.tables:
                connection.register(name, self.catalogue.open(name).scan(snapshots[name], 0, upto))
            moments = {
                name: pa.scalar(instant, pa.timestamp("us", tz="UTC")).as_py()
                for name, instant in (("after", after), ("upto", upto))
            }
            return Evaluated(connection.sql(self.text, params=moments).to_arrow_table(), Read())
        finally:
            connection.close()


class PlainEngine:
    """Engine that takes a text as its own incremental query; a text with BAD is refused."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def prepare(self, text: str) -> PlainQuery:
        """See Engine."""
        if "BAD" in text:
            raise UnsupportedQueryError("BAD is no SQL")
        tables = tuple(
            name
            for name in self._catalogue.names()
            if f" {name} " in text.replace("\n", " ") and not name.startswith("results")
        )
        return PlainQuery(text, tables, self._catalogue)
