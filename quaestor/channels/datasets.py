"""Datasets: records with a key, on versioned tables. Each record of an active dataset has the hidden instant of its publication.

An instant is given in the step that makes a record visible, and the instants of a partition always increase. An instant is
therefore a sequence number, whatever the clocks do. A dataset with several partitions has an instant for each of them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import Any, Final, Self

import pyarrow as pa
import xxhash

from quaestor.channels.records import RESERVED_NAMES, Rejected, Row, accepted_rows, stored_row
from quaestor.channels.versions import LargestKeys, LatestVersions
from quaestor.errors import ConfigurationError, DependencyError
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.changes import Change, Snapshot
from quaestor.tables.inference import DELETED
from quaestor.tables.schema import TS, Column, Schema, SchemaError, Type
from quaestor.tables.schema import decode as decode_schema
from quaestor.tables.versioned import ARROW, SCHEMA, VersionedTable

_PROPERTIES: Final = "dataset"
WRITE: Final = "write"
"""Notes of a partition: the properties of its dataset, and the identity of the newest write."""
ATTEMPTS: Final = 50  # of a writer that other writers overtake
MOST_PARTITIONS: Final = 64
_NOT_BEGUN: Final = -2  # a feed that has written nothing, not even the offset at which it begins (-1)


class Mode(StrEnum):
    """Meaning of a record whose key is there: an error, a replacement, or new values of some fields."""

    INSERT = "insert"
    UPSERT = "upsert"
    MERGE = "merge"


@dataclass(frozen=True, slots=True)
class Position:
    """Position of a feed, published in the entry of the records up to it.

    number: of the batch, increasing from 0; -1 for the offset at which the feed begins.
    offset: of the source.
    """

    feed: str
    number: int
    offset: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Outcome of a write.

    instants: newest instant of each partition after the write.
    accepted: number of records.
    rejected: records that were not written, each with its number in the batch and the reason.
    """

    instants: tuple[int, ...]
    accepted: int
    rejected: tuple[Rejected, ...] = ()


class Dataset:
    """Records with a key. Objects of several processes may work on the same dataset.

    partitions: tables, one for each part of the keys. Their clocks may differ.
    active: whether queries may use the instants of publication.
    extensible: whether an unknown field becomes a column.

    A write is atomic in each partition.
    """

    def __init__(
        self, name: str, partitions: Sequence[VersionedTable], *, active: bool = True, extensible: bool = True
    ) -> None:
        self.name = name
        self.partitions = tuple(partitions)
        self.active = active
        self.extensible = extensible
        schema = self.partitions[0].schema()
        self._key = schema.key
        only_key = _only_key(schema)
        self._keys = [LatestVersions(table, only_key) for table in self.partitions]
        self._largest = [LargestKeys(table) for table in self.partitions]
        self._whole: dict[int, tuple[Schema, LatestVersions]] = {}

    @classmethod
    def create(
        cls,
        catalogue: Catalogue,
        name: str,
        schema: Schema,
        *,
        active: bool = True,
        partitions: int = 1,
        extensible: bool = True,
    ) -> Self:
        """Create a dataset in one step. Raises ConfigurationError for a bad or taken name, key or number of partitions."""
        if not schema.key:
            raise ConfigurationError(f"dataset {name!r} has no key: name its columns in PRIMARY KEY")
        if not 1 <= partitions <= MOST_PARTITIONS:
            raise ConfigurationError(f"{partitions} partitions: a dataset has 1 to {MOST_PARTITIONS}")
        for column in schema.names:
            if column.lower() in RESERVED_NAMES:
                raise SchemaError(f"a column must not be named {column!r}: rename it", column)
        stored = Schema((*schema.columns, Column(DELETED, Type.BOOL)), schema.key)
        properties = json.dumps({"active": active, "partitions": partitions, "extensible": extensible})
        names = [_partition(name, number) for number in range(partitions)]
        catalogue.create_all(dict.fromkeys(names, stored), {_PROPERTIES: properties})
        return cls.open(catalogue, name)

    @classmethod
    def open(cls, catalogue: Catalogue, name: str) -> Self:
        """Return a dataset. Raises ConfigurationError if there is none of this name."""
        first = catalogue.open(name)
        text = first.snapshot().notes.get(_PROPERTIES)
        if text is None:
            raise ConfigurationError(f"table {name!r} is no dataset: create it with CREATE DATASET")
        properties = json.loads(text)
        others = [catalogue.open(_partition(name, number)) for number in range(1, properties["partitions"])]
        return cls(name, [first, *others], active=properties["active"], extensible=properties["extensible"])

    @classmethod
    def drop(cls, catalogue: Catalogue, name: str) -> None:
        """Drop a dataset with its records. Raises ConfigurationError if there is none of this name."""
        for number, _ in reversed(list(enumerate(cls.open(catalogue, name).partitions))):
            catalogue.drop(_partition(name, number))

    @property
    def key(self) -> tuple[str, ...]:
        """Columns of the key."""
        return self._key

    @property
    def schema(self) -> Schema:
        """Columns of a record, the hidden ones left out. Raises DependencyError."""
        first, *others = (visible(table.schema()) for table in self.partitions)
        return reduce(lambda known, other: known.evolved(other, whole=False), others, first)

    def snapshots(self) -> tuple[Snapshot, ...]:
        """Return the present state of each partition. Later records have later instants than these. Raises DependencyError."""
        return tuple(table.snapshot() for table in self.partitions)

    def records(self) -> list[dict[str, Any]]:
        """Return all records, without hidden columns. Raises DependencyError."""
        schema = self.schema
        return [
            row
            for table, snapshot in zip(self.partitions, self.snapshots(), strict=True)
            for row in LatestVersions(table, schema).at(snapshot, snapshot.instant).drop_columns([TS]).to_pylist()
        ]

    def table_of(self, key: Mapping[str, Any]) -> VersionedTable:
        """Return the partition of the records with a key."""
        return self.partitions[self._partition_of(Row(0, dict(key)))]

    def position(self, feed: str) -> Position | None:
        """Return the position of a feed; None: it has written nothing. Raises DependencyError."""
        notes = [snapshot.notes.get(_feed(feed)) for snapshot in self.snapshots()]
        if None in notes:
            return None
        number, offset, _ = min(json.loads(text) for text in notes if text is not None)
        return Position(feed, number, offset)

    def newest_position(self, feed: str) -> Position | None:
        """Return the position of a feed in the partition that is ahead; None: it has written nothing. Raises DependencyError.

        The other partitions may lack records of this batch. The same batch again completes them.
        """
        notes = [snapshot.notes.get(_feed(feed)) for snapshot in self.snapshots()]
        positions = [json.loads(text) for text in notes if text is not None]
        return Position(feed, *max(positions)[:2]) if positions else None

    def insert(self, records: Iterable[Mapping[str, Any]], *, feed: Position | None = None) -> Written:
        """Write new records; a record whose key is there is rejected. See `write`."""
        return self.write(records, Mode.INSERT, feed=feed)

    def upsert(self, records: Iterable[Mapping[str, Any]], *, feed: Position | None = None) -> Written:
        """Write records in place of those with the same keys. See `write`."""
        return self.write(records, Mode.UPSERT, feed=feed)

    def merge(self, records: Iterable[Mapping[str, Any]], *, feed: Position | None = None) -> Written:
        """Write the fields of records over those of the records with the same keys. See `write`."""
        return self.write(records, Mode.MERGE, feed=feed)

    def delete(self, keys: Iterable[Mapping[str, Any]]) -> Written:
        """Delete the records with these keys. A key without a record is no error. Raises DependencyError."""
        schema = self.schema
        accepted = accepted_rows(keys, _only_key(schema), extensible=False)
        rows = {self._key_of(row): Row(row.number, {**row.values, DELETED: True}) for row in accepted.rows}
        return self._published(rows.values(), Mode.UPSERT, None, accepted.rejected, schema)

    def write(self, records: Iterable[Mapping[str, Any]], mode: Mode, *, feed: Position | None = None) -> Written:
        """Write records; the outcome names the rejected records.

        feed: position of a feed after these records. A partition that has this batch already changes nothing, and the same
            rows are rejected.

        A key that occurs twice: the first record is inserted, the last one upserted, all of them merged. Raises DependencyError.
        """
        accepted = accepted_rows(records, self.schema, extensible=self.extensible)
        rejected = list(accepted.rejected)
        rows: dict[tuple[Any, ...], Row] = {}
        for row in accepted.rows:
            key = self._key_of(row)
            if mode is Mode.INSERT and key in rows:
                rejected.append(Rejected(row.number, "the key occurs twice in the batch"))
                continue
            before = rows.get(key)
            rows[key] = Row(row.number, {**before.values, **row.values}) if before and mode is Mode.MERGE else row
        return self._published(rows.values(), mode, feed, rejected, accepted.schema)

    def add_table(self, rows: Any) -> int:
        """Write many records whose keys no other record has; return the instant of their publication.

        rows: Arrow table of the columns.

        Raises ValueError for values that do not fit or a key without value, ConfigurationError if the dataset has several
        partitions, DependencyError. Keys are not compared with the stored ones: use random keys.
        """
        if len(self.partitions) > 1:
            raise ConfigurationError(f"dataset {self.name!r} has several partitions: write its records by upsert")
        if any(rows.column(name).null_count for name in self._key):
            raise ValueError(f"the key {', '.join(self._key)} has no value")
        marked = rows.append_column(DELETED, pa.repeat(False, rows.num_rows))
        table = self.partitions[0]
        file = table.prepare(marked, table.schema())
        return table.publish(lambda _: Change(add=(file,), notes={WRITE: uuid.uuid4().hex[:16]}), [file]).instant

    def _key_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row.values[name] for name in self._key)

    def _published(
        self,
        rows: Iterable[Row],
        mode: Mode,
        feed: Position | None,
        rejected: Iterable[Rejected],
        schema: Schema,
    ) -> Written:
        shares: list[list[Row]] = [[] for _ in self.partitions]
        for row in rows:
            shares[self._partition_of(row)].append(row)
        refused = list(rejected)
        instants, accepted = [], 0
        for number, share in enumerate(shares):
            if not share and feed is None:
                instants.append(self.partitions[number].snapshot().instant)
                continue
            instant, present = self._published_in(number, share, mode, feed, schema)
            instants.append(instant)
            accepted += len(share) - len(present)
            refused += [Rejected(row.number, "the key is there already") for row in present]
        return Written(instants=tuple(instants), accepted=accepted, rejected=tuple(sorted(refused)))

    def _partition_of(self, row: Row) -> int:
        if len(self.partitions) == 1:
            return 0
        text = json.dumps(self._key_of(row), default=str)
        return int(xxhash.xxh3_64_intdigest(text.encode())) % len(self.partitions)

    def _published_in(
        self, number: int, share: list[Row], mode: Mode, feed: Position | None, schema: Schema
    ) -> tuple[int, list[Row]]:
        """Publish the rows of one partition; return its instant, and the rows whose key is there already."""
        table = self.partitions[number]
        for _ in range(ATTEMPTS):
            seen = table.snapshot()
            if feed is not None and seen.progress.get(_feed(feed.feed), _NOT_BEGUN) >= feed.number:
                return seen.instant, _refused_before(seen, feed, share)
            rows, present = self._judged(number, seen, share, mode)
            if not rows and feed is None:
                return seen.instant, present
            numbers = [row.number for row in present]
            instant = _publish(table, rows, schema, feed, seen if mode is not Mode.UPSERT else None, numbers)
            if instant is not None:
                return instant, present
        raise DependencyError(f"dataset {self.name!r}: other writers are always faster; run fewer writers at a time")

    def _judged(self, number: int, seen: Snapshot, share: list[Row], mode: Mode) -> tuple[list[Row], list[Row]]:
        """Return the rows to write, and the rows to insert whose key is there already."""
        if mode is Mode.UPSERT:
            return share, []
        stored = self._stored(number, seen, share, whole=mode is Mode.MERGE)
        if mode is Mode.INSERT:
            present = [row for row in share if self._key_of(row) in stored]
            return [row for row in share if self._key_of(row) not in stored], present
        return [Row(row.number, {**stored.get(self._key_of(row), {}), **row.values}) for row in share], []

    def _stored(
        self, number: int, seen: Snapshot, share: list[Row], *, whole: bool
    ) -> dict[tuple[Any, ...], dict[str, Any]]:
        """Return the stored rows that have the keys of these rows. whole: all columns, not only the key."""
        if share and self._largest[number].are_below(seen, [row.values[self._key[0]] for row in share]):
            return {}
        latest = self._all_columns(number, seen) if whole else self._keys[number]
        state = latest.at(seen, seen.instant).drop_columns([TS])
        columns = {
            name: pa.array([row.values[name] for row in share], state.schema.field(name).type) for name in self._key
        }
        rows = [stored_row(row) for row in latest.having(state, pa.table(columns)).to_pylist()]
        return {tuple(row[name] for name in self._key): row for row in rows}

    def _all_columns(self, number: int, seen: Snapshot) -> LatestVersions:
        """Return the versions of whole records, which stay in memory until a column is added."""
        schema = visible(self.partitions[number].schema(seen))
        known = self._whole.get(number)
        if known is None or known[0] != schema:
            known = self._whole[number] = schema, LatestVersions(self.partitions[number], schema)
        return known[1]


def _only_key(schema: Schema) -> Schema:
    return Schema(tuple(column for column in schema.columns if column.name in schema.key), schema.key)


def visible(schema: Schema) -> Schema:
    """Return the columns of a partition without the hidden ones."""
    return Schema(tuple(column for column in schema.columns if column.name != DELETED), schema.key)


def dataset_names(catalogue: Catalogue) -> list[str]:
    """Return the names of all datasets. Raises DependencyError."""
    names = catalogue.names()
    return [
        name
        for name in names
        if not _is_partition(name, names) and _PROPERTIES in catalogue.open(name).snapshot().notes
    ]


def _is_partition(name: str, names: Sequence[str]) -> bool:
    first, mark, number = name.rpartition("__")
    return bool(mark) and number.isdigit() and first in names


def _refused_before(seen: Snapshot, feed: Position, share: Sequence[Row]) -> list[Row]:
    """Return the rows of the feed's newest batch that were refused because their key was there."""
    number, _, refused = json.loads(seen.notes[_feed(feed.feed)])
    return [row for row in share if number == feed.number and row.number in refused]


def _publish(
    table: VersionedTable,
    rows: Sequence[Row],
    schema: Schema,
    feed: Position | None,
    seen: Snapshot | None,
    refused: Sequence[int],
) -> int | None:
    """Publish rows as one entry and return its instant; None: another writer was faster.

    seen: state that the rows were judged by; None: they are right after any write.
    refused: numbers of the rows whose key is there already; kept with the position of the feed.
    """
    stored = table.schema().evolved(Schema((*schema.columns, Column(DELETED, Type.BOOL)), schema.key), whole=False)
    files = [table.prepare(_arrow(rows, stored), stored)] if rows else []
    identity, published = uuid.uuid4().hex[:16], True

    def decide(now: Snapshot) -> Change | None:
        nonlocal published
        repeated = feed is not None and now.progress.get(_feed(feed.feed), _NOT_BEGUN) >= feed.number
        published = not repeated and (seen is None or now.notes.get(WRITE) == seen.notes.get(WRITE))
        if not published:
            return None
        known = now.notes[SCHEMA]
        notes = {WRITE: identity, SCHEMA: decode_schema(known).evolved(stored, whole=False).encode()}
        if feed is not None:
            notes[_feed(feed.feed)] = json.dumps([feed.number, feed.offset, list(refused)])
        return Change(add=tuple(files), notes=notes, progress={} if feed is None else {_feed(feed.feed): feed.number})

    after = table.publish(decide, files)
    return after.instant if published else None


def _arrow(rows: Sequence[Row], schema: Schema) -> Any:
    arrays, names = [], []
    for column in schema.columns:
        default = False if column.name == DELETED else None
        arrays.append(pa.array([row.values.get(column.name, default) for row in rows], ARROW[column.type]))
        names.append(column.name)
    return pa.table(arrays, names=names)


def _partition(name: str, number: int) -> str:
    return name if number == 0 else f"{name}__{number}"


def _feed(name: str) -> str:
    return f"feed:{name}"
