"""Staleness avoidance: an image older than the newest known of its record, or than its delete, is ignored.

Source: InvaliDB, PVLDB 2020, section 5.1, staleness avoidance. There a primary key is never used again. Here a version
    decides, so an
`_id` inserted again after a delete is simply a newer image.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import bson
from xxhash import xxh3_64_intdigest

from quaestor.model import AfterImage, Version
from quaestor.query.encoding import OPTIONS

RecordId = tuple[str, Hashable]
"""Namespace, and `_id` as an order key."""


class _Newest(NamedTuple):
    """Newest version of a record, with digests of the images seen with it."""

    version: Version
    contents: tuple[int, ...]


class Versions:
    """Newest version of each recently written record; deletes count like all writes. Not thread-safe.

    floor: the first read contains images up to this version.
    repeatable: a repeated image does no harm. Otherwise an image with the newest known version is refused if it equals one
        seen with that version. (Others are accepted: a transaction may write a record several times under one version.)
    """

    __slots__ = ("_dropped", "_newest", "_repeatable", "floor")

    def __init__(self, floor: Version, *, repeatable: bool, dropped: bool = False) -> None:
        """Begin with a read at one version.

        floor, repeatable: see the class.
        dropped: another part drops stale images; only the floor is checked, and nothing is remembered."""
        self.floor = floor
        self._dropped = dropped
        self._repeatable = repeatable
        self._newest: dict[RecordId, _Newest] = {}

    def __len__(self) -> int:
        return len(self._newest)

    def admit(self, record: RecordId, image: AfterImage) -> bool:
        """Whether the image is new; a new image is remembered. O(size of the image)."""
        if image.version <= self.floor:
            return False
        if self._dropped:
            return True
        known = self._newest.get(record)
        if known is not None and image.version < known.version:
            return False
        contents: tuple[int, ...] = ()
        if not self._repeatable:
            content = _digest(image)
            contents = (content,)
            if known is not None and image.version == known.version:
                if content in known.contents:
                    return False
                contents = (*known.contents, content)
        self._newest[record] = _Newest(image.version, contents)
        return True

    def forget(self, before: Version) -> None:
        """Drop duplicate-detection state of images older than `before`, which no longer arrive. O(records)."""
        self.floor = max(self.floor, before - 1)
        self._newest = {record: newest for record, newest in self._newest.items() if newest.version > self.floor}


def _digest(image: AfterImage) -> int:
    content = {"k": image.kind.value, "b": image.before, "a": image.after}
    return xxh3_64_intdigest(bson.encode(content, codec_options=OPTIONS))
