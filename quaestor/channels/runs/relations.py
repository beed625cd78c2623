"""Relations of a run: the records of datasets, as each partition's bounds allow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quaestor.channels.datasets import Dataset
from quaestor.channels.rewriting.definition import Relation
from quaestor.channels.rewriting.reading import CURRENT, PREVIOUS
from quaestor.channels.rewriting.relevance import Condition
from quaestor.channels.rewriting.shared_joins import SharedJoin
from quaestor.channels.versions import LatestVersions
from quaestor.continuous.arrow_sql import quoted, selected
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.changes import Snapshot
from quaestor.tables.files import TS_TYPE
from quaestor.tables.inference import DELETED

BEGINNING = -1
"""Instant before every record."""


@dataclass(frozen=True, slots=True)
class Seen:
    """State of a dataset for one run.

    snapshots: of each partition.
    bounds: instant up to which the run reads each partition.
    """

    dataset: Dataset
    snapshots: tuple[Snapshot, ...]
    bounds: tuple[int, ...]


@dataclass(slots=True)
class _Round:
    """Parts of the plans of channels that are due at one instant.

    states: of datasets, taken once for all of them.
    tables: relations, each read once.
    """

    due: int
    states: dict[str, Seen] = field(default_factory=dict)
    tables: dict[Any, Records] = field(default_factory=dict)


class Records:
    """Records of a relation, which several channels may read, with an index over their values. Use from any thread."""

    def __init__(self) -> None:
        self.rows: Any = None
        self._lock = threading.Lock()
        self._values: dict[str, set[Any]] = {}
        self._fulfilled: dict[tuple[str, str], bool] = {}

    def read(self, reader: Callable[[], Any]) -> bool:
        """Read the records, unless another channel has; return whether it has."""
        with self._lock:
            if self.rows is not None:
                return True
            self.rows = reader()
            return False

    def fulfil(self, condition: Condition) -> bool:
        """Return whether a record fulfils a condition. Equal conditions are examined once for all channels."""
        with self._lock:
            if not self.rows.num_rows or not condition.text:
                return bool(self.rows.num_rows)
            if any(value not in self._values_of(column) for column, value in condition.equal):
                return False
            key = condition.alias, condition.text
            if not condition.is_looked_up and key not in self._fulfilled:
                query = f"SELECT 1 FROM entries AS {quoted(condition.alias)} WHERE {condition.text} LIMIT 1"
                self._fulfilled[key] = bool(selected(query, {"entries": self.rows}).num_rows)
            return condition.is_looked_up or self._fulfilled[key]

    def _values_of(self, column: str) -> set[Any]:
        if column not in self._values:
            self._values[column] = set(pc.unique(self.rows.column(column)).to_pylist())
        return self._values[column]


class Relations:
    """Reader of relations. The newest state of each stays in memory, so a run reads new files only. Use from any thread.

    Channels that are due together may share a reader. The reader then reads one state of each dataset, and each equal relation
    once.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._latest: dict[tuple[str, Any], LatestVersions] = {}
        self._round = _Round(due=-1)
        self._lock = threading.Lock()

    def seen(self, dataset: str, due: int | None = None, least: tuple[int, ...] = ()) -> Seen:
        """Return the state of a dataset. Records that come later have later instants.

        due: instant at which a channel is due: all channels of the newest such instant read one state. None: the present state.
        least: bounds that the state must have reached: another process may have run the channel since.
        """
        if due is None:
            return self._seen(dataset)
        with self._lock:
            if due > self._round.due:
                self._round = _Round(due=due)
            if due < self._round.due:
                return self._seen(dataset)
            if dataset not in self._round.states:
                self._round.states[dataset] = self._seen(dataset)
            state = self._round.states[dataset]
        is_reached = all(bound >= other for bound, other in zip(state.bounds, least, strict=False))
        return state if is_reached else self._seen(dataset)

    def _seen(self, dataset: str) -> Seen:
        opened = Dataset.open(self._catalogue, dataset)
        snapshots = opened.snapshots()
        return Seen(opened, snapshots, tuple(snapshot.instant for snapshot in snapshots))

    def closed(self, datasets: Mapping[str, None]) -> dict[str, Seen]:
        """Return the states of datasets as of one instant, for queries that compare instants of several datasets."""
        opened = {name: Dataset.open(self._catalogue, name) for name in datasets}
        instant = min(table.close() for dataset in opened.values() for table in dataset.partitions)
        return {
            name: Seen(dataset, snapshots := dataset.snapshots(), (instant,) * len(snapshots))
            for name, dataset in opened.items()
        }

    def present(self, relations: Iterable[Relation]) -> dict[str, Any]:
        """Return the present records of relations by name; every record is new."""
        tables = {}
        for relation in relations:
            seen = self.seen(relation.dataset)
            records, _ = self.records(relation, seen, (BEGINNING,) * len(seen.bounds))
            tables[relation.name] = records.rows
        return tables

    def records(
        self, relation: Relation, seen: Seen, previous: tuple[int, ...], due: int | None = None
    ) -> tuple[Records, bool]:
        """Return the records of a relation, and whether another channel has read them already.

        The bounds of each partition are beside its records.
        """
        key = (relation.dataset, relation.columns, relation.new_only, relation.versions, previous, seen.bounds)
        return self._once(key, due, lambda: self._read(relation, seen, previous))

    def joined(
        self, join: SharedJoin, records: Mapping[str, Records], due: int | None, execute: Callable[[], Any]
    ) -> tuple[Records, bool]:
        """Return the records of a join, and whether another channel has executed the join already.

        records: of each relation; other records of equal relations make another join.
        """
        return self._once((join.key, *(records[name] for name in join.relations)), due, execute)

    def _once(self, key: Any, due: int | None, reader: Callable[[], Any]) -> tuple[Records, bool]:
        """Return records that are read once for all channels of the newest instant, and whether another channel read them."""
        with self._lock:
            records = self._round.tables.setdefault(key, Records()) if due == self._round.due else Records()
        return records, records.read(reader)

    def _read(self, relation: Relation, seen: Seen, previous: tuple[int, ...]) -> Any:
        parts = []
        for number, (partition, snapshot) in enumerate(zip(seen.dataset.partitions, seen.snapshots, strict=True)):
            key = (partition.table.location, relation.columns)
            latest = self._latest.setdefault(key, LatestVersions(partition, relation.columns))
            after, upto = previous[number], seen.bounds[number]
            if relation.versions:
                rows = latest.versions(snapshot, upto)
                rows = rows.rename_columns(["deleted" if name == DELETED else name for name in rows.schema.names])
            elif relation.new_only:
                rows = latest.within(snapshot, after, upto)
            else:
                rows = latest.at(snapshot, upto)
            for name, instant in ((PREVIOUS, after), (CURRENT, upto)):
                rows = rows.append_column(name, pa.repeat(pa.scalar(instant, pa.int64()), rows.num_rows).cast(TS_TYPE))
            parts.append(rows)
        return pa.concat_tables(parts)
