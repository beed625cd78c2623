"""Digests of members: of the values that a result shows of a record, and of its place. Apps and cells make the same ones.

The two parts stay separate: a member whose sort key changes may still be known to keep its place.
"""

from __future__ import annotations

from typing import Final

from xxhash import xxh3_128_digest

from quaestor.model import Document
from quaestor.planning.projected import shown_digest
from quaestor.planning.relevant_fields import Fields
from quaestor.planning.rules import Rules

_APPEARANCE: Final = 16
"""Bytes of the digest of the shown values."""


def member_digest(rules: Rules, record: Document) -> bytes:
    """Return the digest of a member, by its record; empty: unknown. Without a sort the filter's fields may decide the order."""
    shown = shown_digest(rules.shown, record)
    if shown is None:
        return b""
    order = Fields(tuple(path for path, _ in rules.sort)) if rules.sort else rules.relevant.placing
    return xxh3_128_digest(shown + rules.index_order.tied.seen(record)) + xxh3_128_digest(order.seen(record))


def look_the_same(first: bytes, other: bytes) -> bool:
    """Whether two records with these digests look the same to a reader of the result, at any place in it."""
    return len(first) == len(other) > _APPEARANCE and first[:_APPEARANCE] == other[:_APPEARANCE]
