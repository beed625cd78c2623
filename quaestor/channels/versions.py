"""Latest versions of a dataset's records: the state of one partition at an instant, kept in memory and brought forward."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quaestor.channels.records import stored_row
from quaestor.continuous.arrow_sql import quoted, selected
from quaestor.tables.changes import Snapshot
from quaestor.tables.files import TS_TYPE, statistics
from quaestor.tables.inference import DELETED
from quaestor.tables.newest import newest_version
from quaestor.tables.reading import opened
from quaestor.tables.schema import TS, Schema, Type
from quaestor.tables.versioned import ARROW, VersionedTable

EXPIRED: Final = "expired_upto"
"""Note of a partition: the instant up to which versions have expired."""


class LatestVersions:
    """Latest version of each record, for some columns of one table. Use from any thread.

    columns: without the hidden ones; the key is always read. A column that the table lacks is NULL.

    A state is brought forward by the rows published since, so a call costs O(state + new rows), and reads new files only.
    """

    def __init__(self, table: VersionedTable, columns: Schema) -> None:
        self._table = table
        self._key = columns.key
        fields = [(column.name, ARROW[column.type]) for column in columns.columns]
        self._wanted = pa.schema([*fields, (DELETED, pa.bool_()), (TS, TS_TYPE)])
        self._state: Any = None
        self._upto = self._expired = -1
        self._lock = threading.Lock()

    def at(self, snapshot: Snapshot, upto: int) -> Any:
        """Return the records at an instant: an Arrow table of the columns and `ts`. Raises DependencyError.

        A record deleted up to then is not there, nor a record whose latest version has expired. Versions later than `upto` do not
        matter.
        """
        with self._lock:
            expired = max(self._expired, _expired(snapshot))
            if self._state is None or upto < self._upto:
                state, after = None, -1
            else:
                state, after = self._state, self._upto
                if expired > self._expired:
                    state = _after(state, expired)
            if self._table.files(snapshot, after, upto):
                state = _brought_forward(state, self._scan(snapshot, after, upto), self._key)
            elif state is None:
                state = self._scan(snapshot, after, upto).drop_columns([DELETED])
            if upto >= self._upto:
                self._state, self._upto, self._expired = state, upto, expired
            return state

    def within(self, snapshot: Snapshot, after: int, upto: int) -> Any:
        """Return the records whose latest version up to an instant was published after another one.

        Only files with rows in (after, upto] are read.
        """
        return _brought_forward(None, self._scan(snapshot, after, upto), self._key)

    def versions(self, snapshot: Snapshot, upto: int) -> Any:
        """Return all versions of all records up to an instant, with the hidden mark of deletions."""
        return self._scan(snapshot, -1, upto)

    def _scan(self, snapshot: Snapshot, after: int, upto: int) -> Any:
        present = self._table.schema(snapshot).names
        rows = self._table.scan(snapshot, after, upto, [name for name in self._wanted.names if name in present])
        columns = [
            rows.column(field.name).cast(field.type)
            if field.name in rows.schema.names
            else pa.nulls(rows.num_rows, field.type)
            for field in self._wanted
        ]
        return _after(pa.table(columns, schema=self._wanted), _expired(snapshot))

    def having(self, state: Any, keys: Any) -> Any:
        """Return the records of a state whose keys are in another Arrow table."""
        names = ", ".join(map(quoted, self._key))
        return selected(f"SELECT * FROM state SEMI JOIN keys USING ({names})", {"state": state, "keys": keys})


class LargestKeys:
    """Largest value of the first key column of a table, from the footers of its files. Use from one thread.

    A record with a larger key is new, so writers of ascending keys need no keys in memory. Only whole numbers are compared.
    """

    def __init__(self, table: VersionedTable) -> None:
        self._table = table
        self._name = ""
        self._largest: int | None = None
        self._upto = -1
        self._is_known = True

    def are_below(self, snapshot: Snapshot, keys: Sequence[Any]) -> bool:
        """Whether all stored keys are surely smaller than all of these. Raises DependencyError."""
        if not self._name:
            schema = self._table.schema(snapshot)
            self._name = schema.key[0]
            self._is_known = schema.type_of(self._name) is Type.BIGINT
        for file in self._table.files(snapshot, self._upto, snapshot.instant) if self._is_known else ():
            with pq.ParquetFile(opened(self._table.table, file)) as content:
                for group in range(content.num_row_groups):
                    self._include(statistics(content, group, self._name))
        self._upto = snapshot.instant
        return self._is_known and (self._largest is None or min(keys) > self._largest)

    def _include(self, known: Any) -> None:
        if known is None:
            self._is_known = False
        else:
            self._largest = known.max if self._largest is None else max(self._largest, known.max)


def present_record(table: VersionedTable, snapshot: Snapshot, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return one record in the form of columns, without hidden ones; None: there is none.

    key: value of each column of the key, in the form of columns.

    The memory holds a part of a file, not the table: see `newest_version`. Raises DependencyError.
    """
    version = newest_version(table, snapshot, key, after=_expired(snapshot))
    if version is None or version.row.pop(DELETED):
        return None
    return stored_row(version.row)


def _expired(snapshot: Snapshot) -> int:
    return int(snapshot.notes.get(EXPIRED, -1))


def _after(rows: Any, instant: int) -> Any:
    """Return the rows after an instant."""
    if instant < 0:
        return rows
    return rows.filter(pc.greater(rows.column(TS).cast(pa.int64()), pa.scalar(instant, pa.int64())))


def _brought_forward(state: Any, rows: Any, key: Sequence[str]) -> Any:
    """Return a state after further versions; None: no record before them."""
    names = [name for name in rows.schema.names if name != DELETED]
    columns, keys = ", ".join(map(quoted, names)), ", ".join(map(quoted, key))
    newest = f"row_number() OVER (PARTITION BY {keys} ORDER BY {TS} DESC) = 1"
    query = f"WITH latest AS (SELECT * FROM new_rows QUALIFY {newest}) SELECT {columns} FROM latest WHERE NOT {DELETED}"
    tables = {"new_rows": rows}
    if state is not None:
        tables["old_rows"] = state
        query += f" UNION ALL SELECT {columns} FROM old_rows ANTI JOIN latest USING ({keys})"
    return selected(query, tables).cast(rows.schema.remove(rows.schema.get_field_index(DELETED)))
