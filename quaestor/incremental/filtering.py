"""Filtering stage: writes become changes of the matching records. The first step of every maintained result.

The state before a write comes from one of two places. *Membership*: a later stage remembers its rows. *Before-images*: the
write holds it, and nothing is remembered for a record. Source: InvaliDB, PVLDB 2020, section 5.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bson.raw_bson import RawBSONDocument

from quaestor.errors import UncertainMatchError
from quaestor.event_layer.codec import plain
from quaestor.incremental.changes import UNKNOWN, Change, Row
from quaestor.model import AfterImage, Document, WriteKind
from quaestor.query.bson_order import order_key
from quaestor.query.paths import Matcher


class ImageFilter:
    """Filter of the images of one namespace. Remembers nothing."""

    __slots__ = ("_before_images", "_matches")

    def __init__(self, matches: Matcher, *, before_images: bool) -> None:
        self._matches = matches
        self._before_images = before_images

    def change(self, image: AfterImage) -> Change | None:
        """Return the change that a write makes to the matching records; None if it certainly makes none.

        An update whose record could not be looked up any more counts as its delete, which is on its way.

        Raises UncertainMatchError if the filter cannot decide, or needs before-images and the write has none.
        """
        after = None if image.kind is WriteKind.DELETE else self._matching(image.after)
        key = order_key(image.key)
        if not self._before_images:
            return Change(key, image.key, UNKNOWN, after)
        exact = image.kind is WriteKind.DELETE or image.after_exact
        if not image.before_known or not exact:
            raise UncertainMatchError(
                f"the {image.kind.value} of {image.key!r} in {image.namespace} came without exact before- and after-image; "
                "switch on changeStreamPreAndPostImages for the collection, or keep the result by membership"
            )
        before = self._matching(image.before)
        return None if before is None and after is None else Change(key, image.key, before, after)

    def initial(self, records: Sequence[Document]) -> list[Change]:
        """Return the changes that bring the records found by the database into an empty result."""
        before = None if self._before_images else UNKNOWN
        return [Change(order_key(record["_id"]), record["_id"], before, as_row(record)) for record in records]

    def _matching(self, record: Document | None) -> Row | None:
        if record is None:
            return None
        row = as_row(record)
        return row if self._matches(row) else None


def as_row(record: Document) -> Row:
    """Return the record as a row, decoded once; otherwise every stage would decode a lazy record again."""
    if record.__class__ is dict:
        return record
    if isinstance(record, RawBSONDocument):
        decoded: Mapping[str, Any] = plain(record)
        return decoded
    return dict(record)
