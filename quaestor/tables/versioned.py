"""Versioned table: typed rows, each with the instant of its publication, over a table with a log.

The schema lies in the log, beside the rows, so a reader of a snapshot has the columns of that moment. Files keep the columns of
their time; a scan adds new columns as NULL, and widens.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quaestor.clock import Clock, system_clock
from quaestor.errors import DependencyError
from quaestor.tables.changes import Change, DataFile, Snapshot
from quaestor.tables.files import TS_TYPE, data_file, instants, statistics
from quaestor.tables.log import Table
from quaestor.tables.reading import opened
from quaestor.tables.schema import STEP, TS, Column, Schema, SchemaError, Type, decode
from quaestor.tables.values import PRECISION, SCALE, fitted

SCHEMA: Final = "schema"
"""Note of the log that holds the schema."""
_ROWS_OF_A_THREAD: Final = 50_000
"""Rows of a group that are read without other threads: waking them takes longer."""

ARROW: Final = {
    Type.BIGINT: pa.int64(), Type.DOUBLE: pa.float64(), Type.DECIMAL: pa.decimal128(PRECISION, SCALE), Type.TEXT: pa.string(),
    Type.BOOL: pa.bool_(), Type.TIMESTAMP: TS_TYPE, Type.BYTES: pa.binary(), Type.JSON: pa.string(),
    Type.POINT: pa.struct([("x", pa.float64()), ("y", pa.float64())]),
}  # fmt: skip

Rows: TypeAlias = Any
"""Rows to append: an iterable of mappings of Python's or BSON's values, or an Arrow table. Absent columns are NULL."""


class VersionedTable:
    """Table of typed rows. Objects of several processes may work on the same table.

    name: in SQL.
    clock: gives the instants of entries.
    """

    def __init__(self, table: Table, schema: Schema, name: str, *, clock: Clock = system_clock) -> None:
        self.table = table
        self.name = name
        self._schema = schema
        self._clock = clock

    def snapshot(self) -> Snapshot:
        """Return the present table. Raises DependencyError."""
        return self.table.snapshot()

    def schema(self, snapshot: Snapshot | None = None) -> Schema:
        """Return the columns of a snapshot; None: of the present table. Raises DependencyError."""
        text = (snapshot or self.snapshot()).notes.get(SCHEMA)
        return self._schema if text is None else decode(text)

    def close(self) -> int:
        """Close an instant and return it: later rows always have a later instant. Raises DependencyError.

        A run over several tables closes all of them; the least of their instants is closed in every table.
        """
        return self.table.close(now_us=self._clock() * 1000)

    @contextmanager
    def preparing(self) -> Iterator[list[DataFile]]:
        """Give a list for files from `prepare`, before they are published. If the block fails, they are deleted."""
        files: list[DataFile] = []
        try:
            yield files
        except DependencyError:
            raise  # maintenance deletes them: the storage takes no requests
        except BaseException:
            for file in files:
                self.table.storage.delete(file.path)
            raise

    def publish(
        self,
        decide: Callable[[Snapshot], Change | None],
        files: Sequence[DataFile] = (),
        *,
        now_us: int | None = None,
    ) -> Snapshot:
        """Make one change; return the table after it. See Table.publish.

        files: from `prepare`, for the change to add. A file that the table does not have afterwards is deleted.
        now_us: instant of the change, or later; None: the present instant.
        """
        lost = files
        try:
            after = self.table.publish(decide, now_us=self._clock() * 1000 if now_us is None else now_us)
            lost = [file for file in files if file.path not in after.files]
        except DependencyError:
            lost = ()  # perhaps they are published: maintenance deletes them if not
            raise
        finally:
            for file in lost:
                self.table.storage.delete(file.path)
        return after

    def evolve(self, schema: Schema) -> None:
        """Declare the whole schema: columns may be new or wider. Raises SchemaError, DependencyError."""

        def decide(now: Snapshot) -> Change | None:
            known = now.notes.get(SCHEMA)
            text = (schema if known is None else decode(known).evolved(schema, whole=True)).encode()
            return None if text == known else Change(notes={SCHEMA: text})

        self.publish(decide)

    def append(
        self,
        rows: Rows,
        *,
        progress: Mapping[str, int] | None = None,
        notes: Mapping[str, str | None] | None = None,
        additions: Schema | None = None,
        steps: Sequence[int] | None = None,
        files: Sequence[DataFile] = (),
        expected: Mapping[str, int | None] | None = None,
        expected_notes: Mapping[str, str | None] | None = None,
    ) -> int:
        """Publish rows as one entry; return its last instant, or the table's if the entry was there already.

        progress: by query, the instant up to which its results are in the table; published with the rows. If the table's
            progress of any of these queries has reached that instant already, nothing is published.
        notes: texts published with the rows; None forgets a note.
        additions: schema of the rows, if they have new or wider columns; published with them.
        expected: by query, the progress from which the rows were made (None: no progress). If the table has another progress,
            another writer was faster, and nothing is published.
        steps: by row, the distance of its instant from the first one, not decreasing; by default all have the same instant.
        files: further rows, from `prepare`.
        expected_notes: notes that the table must have; None: must not have. If one differs, nothing is published.

        Raises SchemaError, ValueError for a value of another type, DependencyError. Nothing is published then, except after a
        DependencyError, which leaves that open.
        """
        schema = self.schema() if additions is None else self.schema().evolved(additions, whole=False)
        content = self._table(rows, schema, steps)
        written = (*files, self._written(content)) if content.num_rows else tuple(files)
        reached = progress or {}

        def decide(now: Snapshot) -> Change | None:
            if any(now.progress.get(query, -1) >= instant for query, instant in reached.items()):
                return None
            if any(now.progress.get(query) != instant for query, instant in (expected or {}).items()):
                return None
            if any(now.notes.get(name) != text for name, text in (expected_notes or {}).items()):
                return None
            known = now.notes.get(SCHEMA)
            text = (schema if known is None else decode(known).evolved(schema, whole=False)).encode()
            return Change(
                add=written,
                progress=reached,
                notes={**(notes or {}), **({} if text == known else {SCHEMA: text})},
                instants=1 + (steps[-1] if steps else 0),
            )

        after = self.publish(decide, written)
        return after.files[written[-1].path].last if written and written[-1].path in after.files else after.instant

    def prepare(self, rows: Rows, schema: Schema) -> DataFile:
        """Write rows to a file that `append` publishes later, for more rows than fit into the memory. Raises as `append` does.

        schema: columns of the rows.
        """
        return self._written(self._table(rows, schema, None))

    def files(self, snapshot: Snapshot, after: int, upto: int) -> list[DataFile]:
        """Return the files that may have rows with an instant in (after, upto], by their first instants."""
        wanted = [file for file in snapshot.files.values() if file.last > after and file.first <= upto]
        return sorted(wanted, key=lambda file: (file.first, file.last, file.path))

    def scan(self, snapshot: Snapshot, after: int, upto: int, columns: Sequence[str] | None = None) -> Any:
        """Return the rows of a snapshot with an instant in (after, upto]: an Arrow table of the columns and `ts`.

        columns: names; None: all.

        Files and row groups outside are not read. Raises SchemaError, DependencyError.
        """
        wanted = self._wanted(snapshot, columns)
        parts = list(self._all_parts(snapshot, wanted, after, upto))
        return pa.concat_tables(parts) if parts else wanted.empty_table()

    def parts(self, snapshot: Snapshot, after: int, upto: int, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield the rows of `scan` by row groups, for more rows than fit into the memory. There is at least one part."""
        wanted = self._wanted(snapshot, columns)
        yield wanted.empty_table()
        yield from self._all_parts(snapshot, wanted, after, upto)

    def _all_parts(self, snapshot: Snapshot, wanted: Any, after: int, upto: int) -> Iterator[Any]:
        for file in self.files(snapshot, after, upto):
            yield from self._parts(file, wanted, after, upto)

    def _wanted(self, snapshot: Snapshot, columns: Sequence[str] | None) -> Any:
        """Return the Arrow schema of columns and `ts`. Raises SchemaError for an unknown column."""
        schema = self.schema(snapshot)
        names = schema.names if columns is None else tuple(name for name in columns if name != TS)
        kinds: dict[str, Any] = {}
        for name in names:
            kind = schema.type_of(name)
            if kind is None:
                raise SchemaError(
                    f"table {self.name!r} has no column {name!r}: there are {', '.join(schema.names)}", name
                )
            kinds[name] = ARROW[kind]
        return pa.schema([*kinds.items(), (TS, TS_TYPE)])

    def _parts(self, file: DataFile, wanted: Any, after: int, upto: int) -> Iterator[Any]:
        """Yield the rows of a file's row groups with these columns and instants."""
        whole = after < file.first and file.last <= upto
        with pq.ParquetFile(opened(self.table, file)) as content:
            present = [name for name in content.schema_arrow.names if name in wanted.names or name == STEP]
            for group in range(content.num_row_groups):
                if not whole and _outside(content, group, after, upto):
                    continue
                is_large = content.metadata.row_group(group).num_rows > _ROWS_OF_A_THREAD
                rows = content.read_row_group(group, columns=present, use_threads=is_large)
                if not present:
                    rows = pa.table(
                        {STEP: pa.repeat(pa.scalar(0, pa.int64()), content.metadata.row_group(group).num_rows)}
                    )
                rows = _conformed(rows, instants(rows, file), wanted)
                if not whole:
                    at = rows.column(TS).cast(pa.int64())
                    rows = rows.filter(pc.and_(pc.greater(at, after), pc.less_equal(at, upto)))
                yield rows

    def _table(self, rows: Rows, schema: Schema, steps: Sequence[int] | None) -> Any:
        """Return rows as an Arrow table with the columns of the schema."""
        fields = [(column.name, ARROW[column.type]) for column in schema.columns]
        if isinstance(rows, pa.Table):
            listed = rows
            unknown = [name for name in rows.schema.names if name not in schema.names]
            arrays = [
                rows.column(name).cast(kind) if name in rows.schema.names else pa.nulls(rows.num_rows, kind)
                for name, kind in fields
            ]
        else:
            listed = list(rows)
            unknown = sorted({name for row in listed for name in row} - set(schema.names))
            arrays = [_array([row.get(column.name) for row in listed], column) for column in schema.columns]
        if unknown:
            raise SchemaError(f"table {self.name!r} has no column {unknown[0]!r}: declare it first", unknown[0])
        if steps is not None:
            fields, arrays = [*fields, (STEP, pa.int64())], [*arrays, pa.array(steps, pa.int64())]
        if not fields:
            return pa.table({STEP: pa.array([0] * len(listed), pa.int64())})
        return pa.table(arrays, schema=pa.schema(fields))

    def _written(self, content: Any) -> DataFile:
        buffer = io.BytesIO()
        pq.write_table(content, buffer, compression="zstd")
        path = f"data/{uuid.uuid4().hex}.parquet"
        self.table.storage.create_if_absent(path, buffer.getvalue())
        return data_file(path, rows=content.num_rows, size=buffer.tell())


def _array(values: Sequence[Any], column: Column) -> Any:
    try:
        return pa.array([fitted(value, column.type) for value in values], ARROW[column.type])
    except (ValueError, OverflowError) as error:
        raise ValueError(f"column {column.name!r}: {error}") from error


def _outside(content: Any, group: int, after: int, upto: int) -> bool:
    """Whether the statistics of a row group show that all its instants lie outside (after, upto]."""
    known = statistics(content, group, TS)
    if known is None:
        return False
    least, most = (pa.scalar(edge, TS_TYPE).value for edge in (known.min, known.max))
    return bool(most <= after or least > upto)


def _conformed(rows: Any, at: Any, wanted: Any) -> Any:
    """Return rows with exactly these columns and their instants."""
    columns = [
        at
        if field.name == TS
        else rows.column(field.name).cast(field.type, safe=False)
        if field.name in rows.schema.names
        else pa.nulls(rows.num_rows, field.type)
        for field in wanted
    ]
    return pa.table(columns, schema=wanted)
