"""Relations of a run: the records of datasets, as each partition's bounds allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from quaestor.channels.datasets import Dataset
from quaestor.channels.rewriting.compilation import Relation
from quaestor.channels.rewriting.reading import CURRENT, PREVIOUS
from quaestor.channels.versions import LatestVersions
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


class Relations:
    """Reader of relations. The newest state of each stays in memory, so a run reads new files only."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._latest: dict[tuple[str, Any], LatestVersions] = {}

    def seen(self, dataset: str) -> Seen:
        """Return the present state of a dataset. Records that come later have later instants."""
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

    def table(self, relation: Relation, seen: Seen, previous: tuple[int, ...]) -> Any:
        """Return the records of a relation as an Arrow table, with the bounds of each partition beside them."""
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
