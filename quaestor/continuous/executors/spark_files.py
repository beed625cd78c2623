"""Files of versioned tables as frames of Spark, with the instant of each row."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from quaestor.continuous.executors.binding import Window
from quaestor.continuous.executors.stored import StoredRows
from quaestor.tables.changes import DataFile
from quaestor.tables.schema import STEP, TS
from quaestor.tables.storage import FolderStorage
from quaestor.tables.versioned import ARROW

_FIRST: Final = "_first"
_FILE: Final = "_file"
_MOST_FOOTERS: Final = 100_000
_BIGGEST_MAP: Final = 200
"""Files whose instants stand in the plan itself; those of more files are a table to join with."""


class SparkFiles:
    """Frames over the files of tables in folders.

    Files of one form are read together. The footer of each file is read once, here: it says which columns the file has.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._footers: OrderedDict[str, Any] = OrderedDict()

    def frame(self, rows: StoredRows, window: Window) -> Any:
        """Return the rows in a window, with their instants in `ts`. Files outside are not read.

        Raises SchemaError, DependencyError.
        """
        after, upto = rows.within(window.after, window.upto)
        forms: dict[Any, list[DataFile]] = {}
        files = rows.files(after, upto)
        rows.read_files(files)
        for file in files:
            forms.setdefault(self._form(rows, file), []).append(file)
        whole = all(after < file.first and file.last <= upto for file in files)
        frames = [self._of_form(rows, form, members) for form, members in forms.items()]
        if not frames:
            return self._session.createDataFrame(rows.table.scan(rows.snapshot, upto, upto, rows.columns))
        frame = frames[0]
        for other in frames[1:]:
            frame = frame.unionByName(other)
        if whole:
            return frame
        from pyspark.sql import functions

        first, last = (functions.timestamp_micros(functions.lit(instant)) for instant in (after, upto))
        return frame.where((functions.col(TS) > first) & (functions.col(TS) <= last))

    def _form(self, rows: StoredRows, file: DataFile) -> Any:
        """Return the columns of a file that a query uses, with the types in the file."""
        footer = self._footers.get(file.path)
        if footer is None:
            storage = rows.table.table.storage
            assert isinstance(storage, FolderStorage)
            footer = self._footers[file.path] = pq.read_schema(storage.root / file.path)
            if len(self._footers) > _MOST_FOOTERS:
                self._footers.popitem(last=False)
        used = {*rows.columns, TS, STEP}
        return tuple((field.name, field.type) for field in footer if field.name in used)

    def _of_form(self, rows: StoredRows, form: Any, files: list[DataFile]) -> Any:
        from pyspark.sql import functions
        from pyspark.sql.pandas.types import from_arrow_type
        from pyspark.sql.types import StructField, StructType

        storage = rows.table.table.storage
        assert isinstance(storage, FolderStorage)
        schema = StructType([StructField(name, from_arrow_type(kind)) for name, kind in form])
        paths = [Path(storage.root, file.path).absolute().as_uri() for file in files]
        frame = self._session.read.schema(schema).parquet(*paths)
        present = {name for name, _ in form}
        if TS not in present:
            frame = self._with_first(frame, files)
            step = functions.col(STEP) if STEP in present else functions.lit(0)
            frame = frame.withColumn(TS, functions.timestamp_micros(functions.col(_FIRST) + step))
        table = rows.table.schema(rows.snapshot)
        wanted = []
        for name in rows.columns:
            kind = table.type_of(name)
            assert kind is not None
            value = functions.col(f"`{name}`") if name in present else functions.lit(None)
            wanted.append(value.cast(from_arrow_type(ARROW[kind])).alias(name))
        return frame.select(*wanted, functions.col(TS))

    def _with_first(self, frame: Any, files: list[DataFile]) -> Any:
        """Add the first instant of each row's file."""
        from pyspark.sql import functions

        instants = {file.path.rpartition("/")[2]: file.first for file in files}
        name = functions.col("_metadata.file_name")
        if len(set(instants.values())) == 1:
            return frame.withColumn(_FIRST, functions.lit(files[0].first).cast("bigint"))
        if len(instants) <= _BIGGEST_MAP:
            pairs = [functions.lit(part) for item in instants.items() for part in item]
            return frame.withColumn(_FIRST, functions.create_map(*pairs)[name].cast("bigint"))
        known = self._session.createDataFrame(list(instants.items()), f"{_FILE} string, {_FIRST} bigint")
        return frame.withColumn(_FILE, name).join(functions.broadcast(known), _FILE).drop(_FILE)
