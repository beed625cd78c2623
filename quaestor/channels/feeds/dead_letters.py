"""Dead letters of a feed: records that could not be written, in a dataset of their own, with their bytes and the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from quaestor.channels.datasets import Dataset, Position, dataset_names
from quaestor.channels.feeds.definitions import FeedDefinition
from quaestor.channels.feeds.records import Incoming
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.schema import Column, Schema, Type

_SCHEMA: Final = Schema(
    (
        Column("letter", Type.TEXT),
        Column("feed", Type.TEXT),
        Column("source", Type.TEXT),
        Column("offset", Type.TEXT),
        Column("bytes", Type.BYTES),
        Column("reason", Type.TEXT),
    ),
    ("letter",),
)
LETTERS: Final = "_dead_letters"
"""End of the names of such datasets."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Record that was not written.

    number: in its batch, from 0.
    """

    number: int
    record: Incoming
    reason: str


class FeedLetters:
    """Dead letters of the feeds of one name: the dataset `<feed>_dead_letters`, made with the first letter."""

    def __init__(self, catalogue: Catalogue, feed: FeedDefinition) -> None:
        self._catalogue = catalogue
        self._feed = feed
        self.name = f"{feed.name}{LETTERS}"
        self._dataset: Dataset | None = None

    def keep(self, number: int, refused: Sequence[Refused]) -> None:
        """Keep the letters of a batch. The same batch again changes nothing. Raises DependencyError."""
        dataset = self.dataset() or self._made()
        identity = f"{self._feed.identity}-" if self._feed.identity else ""
        rows = [
            {
                "letter": f"{identity}{number:018d}-{entry.number:06d}",
                "feed": self._feed.name,
                "source": str(self._feed.source["type"]),
                "offset": entry.record.offset,
                "bytes": entry.record.data,
                "reason": entry.reason,
            }
            for entry in refused
        ]
        dataset.upsert(rows, feed=Position(self._feed.place, number, ""))

    def all(self) -> list[dict[str, Any]]:
        """Return all letters, the oldest first. Raises DependencyError."""
        dataset = self.dataset()
        return [] if dataset is None else sorted(dataset.records(), key=lambda row: str(row["letter"]))

    def remove(self, letters: Sequence[str]) -> None:
        """Remove letters. Raises DependencyError."""
        dataset = self.dataset()
        if dataset is not None and letters:
            dataset.delete([{"letter": letter} for letter in letters])

    def dataset(self) -> Dataset | None:
        """Return the dataset; None: there was no letter yet. Raises DependencyError."""
        if self._dataset is None and self.name in dataset_names(self._catalogue):
            self._dataset = Dataset.open(self._catalogue, self.name)
        return self._dataset

    def _made(self) -> Dataset:
        self._dataset = Dataset.create(self._catalogue, self.name, _SCHEMA, active=False, extensible=False)
        return self._dataset
