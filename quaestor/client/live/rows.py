"""Rows of a followed result in a client, kept by the messages of the server. No I/O.

`quaestor/realtime/rows.py` keeps rows by the events of the grid, and imports the query language. A client does without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bson

Message = Mapping[str, Any]
"""Message of the server, with BSON types."""


class OutOfStepError(ValueError):
    """Error that a message does not fit the rows. The result must be read anew."""


def key_of(record: Any) -> bytes:
    """Identity of a record: its `_id`, or `id` in the thesis' form, as BSON."""
    return bson.encode({"": record.get("_id", record.get("id")) if isinstance(record, Mapping) else record})


class LiveRows:
    """Rows of one result, in order if the query has one."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._records: dict[bytes, Any] = {}

    def __len__(self) -> int:
        return len(self._records)

    def records(self) -> list[Any]:
        """The records. O(their number)."""
        return [self._records[key] for key in self._keys]

    def replace(self, records: list[Any], keys: list[Any] | None = None) -> None:
        """Begin with these records.

        keys: their identities, if some are not their `_id`s.
        """
        self._keys = [key_of(record) for record in records] if keys is None else [key_of({"_id": key}) for key in keys]
        self._records = dict(zip(self._keys, records, strict=True))

    def apply(self, match: Message) -> None:
        """Apply a `match` message. Raises OutOfStepError if it does not fit. O(number of rows)."""
        kind = match["matchType"]
        key = key_of({"_id": match["key"]} if "key" in match else match["data"])
        if (key in self._records) is (kind == "add"):
            raise OutOfStepError(f"{kind} of {key!r}, which is {'not ' * (kind != 'add')}there")
        place = match.get("index")
        if kind != "add":
            before = match.get("previousIndex")
            if before is None and (kind == "remove" or place is not None):
                before = self._keys.index(key)
            if before is not None:
                if not (0 <= before < len(self._keys) and self._keys[before] == key):
                    raise OutOfStepError(f"{key!r} is not at {before}")
                del self._keys[before]
                place = before if place is None else place
        if kind == "remove":
            del self._records[key]
            return
        record = match["data"] if "data" in match else _changed(self._records[key], match["changes"])
        if kind == "add" or place is not None:
            place = len(self._keys) if place is None else place
            if place > len(self._keys):
                raise OutOfStepError(f"{key!r} to {place}, behind the end")
            self._keys.insert(place, key)
        self._records[key] = record


def _changed(record: Any, changes: Message) -> Any:
    removed = set(changes["removed"])
    return {name: value for name, value in record.items() if name not in removed} | changes["updated"]
