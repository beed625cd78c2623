"""Collection of MongoDB as a versioned table, filled by its change stream.

Each write becomes a row: a version of its record, valid from the instant of its publication. Writes of one transaction share an
instant; all others have instants of their own, in the order of the writes. The position of the stream lies in the same log entry
as the rows. A process that is killed at any moment therefore neither loses nor repeats a version, and several processes may fill
one table.

The first fill, and every fill after a loss of the stream, compares a snapshot of the collection with the table. The differences
are one entry.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, Final

import xxhash
from pymongo.collection import Collection

from quaestor.clock import Clock, system_clock
from quaestor.cluster_time import version_of
from quaestor.errors import ConfigurationError
from quaestor.observability.telemetry import Telemetry
from quaestor.tables import change_stream
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.change_stream import Batch, StreamLostError
from quaestor.tables.changes import DataFile, Snapshot
from quaestor.tables.inference import DELETED, ID, Inference, schema_of_key
from quaestor.tables.intervals import VALID_TO, versions
from quaestor.tables.schema import Schema, Type
from quaestor.tables.values import fitted, type_of
from quaestor.tables.versioned import VersionedTable

POSITION: Final = "position"
"""Note of the log that holds the position of the change stream."""
_CHUNK: Final = 10_000
_EMPTY_AGAIN_S: Final = 0.5
_SAVE_IDLE_AFTER: Final = 120
"""Empty reads after which the position is saved, so that an idle collection's position stays in the oplog: one minute."""


class FollowedCollection:
    """Collection that fills a table of the catalogue. Use from one thread; others may fill the same table.

    declared: columns; None: they are inferred from the records. The type of `_id` is inferred if it is not declared; an empty
        collection then becomes a table with its first record.
    """

    def __init__(
        self,
        collection: Collection[Any],
        catalogue: Catalogue,
        name: str,
        *,
        declared: Schema | None = None,
        telemetry: Telemetry | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self._collection = collection
        self._catalogue = catalogue
        self._name = name
        self._declared = declared
        self._telemetry = telemetry or Telemetry()
        self._clock = clock

    def run(self, stop: threading.Event) -> None:
        """Fill the table until `stop` is set: the body of a supervised thread, which restarts it after a failure.

        Raises DependencyError, ConfigurationError; a later call goes on at the table's position.
        """
        change_stream.keep_images(self._collection)
        table = self._table()
        while table is None and not stop.wait(_EMPTY_AGAIN_S):
            table = self._table()
        while table is not None and not stop.is_set():
            position = table.snapshot().notes.get(POSITION)
            try:
                if position is None:
                    self._fill(table, position)
                else:
                    self._follow(table, position, stop)
            except StreamLostError as error:
                self._telemetry.failure("tables", "tables.versions_lost", error, table=self._name)
                self._telemetry.tables.gaps.labels(self._name).inc()
                change_stream.keep_images(self._collection)
                self._fill(table, position)

    def _table(self) -> VersionedTable | None:
        """Return the table, made if there is none. None: the collection is empty, and no type of `_id` is declared.

        Raises SchemaError if the declared columns do not follow the present ones, DependencyError.
        """
        try:
            if self._name not in self._catalogue.names():
                schema = self._first_schema()
                return None if schema is None else self._catalogue.create(self._name, schema)
            table = self._catalogue.open(self._name)
            if self._declared is not None:
                table.evolve(with_key(self._declared, table.schema()))
        except ConfigurationError as error:
            self._telemetry.failure("tables", "tables.schema_refused", error, lasting=True, table=self._name)
            raise
        return table

    def _first_schema(self) -> Schema | None:
        declared = self._declared or Schema(())
        if (kind := declared.type_of(ID)) is None:
            record = change_stream.any_record(self._collection)
            kind = None if record is None else type_of(record[ID])
        return None if kind is None else with_key(declared, schema_of_key(kind))

    def _follow(self, table: VersionedTable, position: str, stop: threading.Event) -> None:
        """Append writes until `stop` is set, or another process has appended."""
        inference = Inference(table.schema(), declared=self._declared is not None)
        idle = 0
        with change_stream.opened(self._collection, position) as stream:
            while not stop.is_set():
                batch = stream.read()
                idle = 0 if batch.events else idle + 1
                if batch.position is not None and (batch.events or idle % _SAVE_IDLE_AFTER == 0):
                    table.append(
                        [self._row(inference, event) for event in batch.events],
                        notes={POSITION: batch.position},
                        expected_notes={POSITION: position},
                        additions=inference.schema,
                        steps=batch.units or None,
                    )
                    if table.snapshot().notes.get(POSITION) != batch.position:
                        return
                    position = batch.position
                self._report(batch)

    def _row(self, inference: Inference, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return the row of a write. Raises StreamLostError if the server no longer has the image of an update."""
        if event["operationType"] == "delete":
            return {ID: event["documentKey"][ID], DELETED: True}
        document = event.get("fullDocument")
        if document is None:
            raise StreamLostError("the image of an update is gone: keep images longer than a pause of this process")
        return self._inferred(inference, document)

    def _inferred(self, inference: Inference, document: Mapping[str, Any]) -> dict[str, Any]:
        try:
            row, refused = inference.row(document)
        except ValueError as error:
            text = f"{self._name}: {error}; make a new table, or give the record another _id"
            self._telemetry.failure("tables", "tables.schema_refused", text, lasting=True, table=self._name)
            raise ConfigurationError(text) from error
        for field, reason in refused:
            self._telemetry.failure("tables", "tables.value_refused", reason, table=self._name, column=field)
            self._telemetry.tables.refused.labels(self._name).inc()
        return row

    def _report(self, batch: Batch) -> None:
        self._telemetry.tables.versions.labels(self._name).inc(len(batch.events))
        lag_s = 0.0
        if batch.events:
            lag_s = max(0.0, self._clock() / 1000 - (version_of(batch.events[-1]["clusterTime"]) >> 32))
        self._telemetry.tables.lag.labels(self._name).set(lag_s)

    def _fill(self, table: VersionedTable, position: str | None) -> None:
        """Append the differences between the collection and the table as one entry. Memory: about 100 bytes a record."""
        before = table.snapshot()
        inference = Inference(table.schema(before), declared=self._declared is not None)
        alive = _alive(table, before)
        files: list[DataFile] = []
        with change_stream.snapshot(self._collection) as snapshot:
            changed = self._changed(inference, snapshot.records, alive)
            while chunk := list(islice(changed, _CHUNK)):
                files.append(table.prepare(chunk, inference.schema))
        gone = [{ID: key, DELETED: True} for key in alive]
        table.append(
            gone,
            notes={POSITION: snapshot.position},
            expected_notes={POSITION: position},
            additions=inference.schema,
            files=files,
        )
        self._telemetry.tables.versions.labels(self._name).inc(sum(file.rows for file in files) + len(gone))

    def _changed(
        self, inference: Inference, documents: Iterator[Mapping[str, Any]], alive: dict[Any, int]
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of new and changed records. Leave in `alive` the keys that have no record any more."""
        for document in documents:
            row = self._inferred(inference, document)
            schema = inference.schema
            kind = schema.type_of(ID)
            assert kind is not None
            if alive.pop(fitted(document[ID], kind), None) != _digest(_as_stored(row, schema)):
                yield row


def with_key(declared: Schema, key: Schema) -> Schema:
    """Return declared columns with the columns of every collection.

    key: columns of every collection.
    """
    own = [column for column in key.columns if column.name in (ID, DELETED) and declared.type_of(column.name) is None]
    return Schema((*own, *declared.columns), (ID,))


def _alive(table: VersionedTable, snapshot: Snapshot) -> dict[Any, int]:
    """Return the keys of the records that are alive in the table, with a digest of their newest versions."""
    alive: dict[Any, int] = {}
    for batch in versions(table, snapshot, snapshot.instant).to_batches(_CHUNK):
        for row in batch.to_pylist():
            if row[VALID_TO] is None:
                alive[row[ID]] = _digest(
                    {name: value for name, value in row.items() if name in table.schema(snapshot).names}
                )
    return alive


def _as_stored(row: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    return {
        column.name: fitted(row.get(column.name), column.type) for column in schema.columns if column.name != DELETED
    }


def _digest(row: Mapping[str, Any]) -> int:
    """Digest of a row's values, NULLs left out: a column that came later changes nothing."""
    values = [
        (name, fitted(value, Type.TIMESTAMP) if isinstance(value, datetime) else value)
        for name, value in sorted(row.items())
        if value is not None
    ]
    return xxhash.xxh3_64_intdigest(repr(values).encode())
