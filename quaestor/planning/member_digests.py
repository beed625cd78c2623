"""Digests of members: of what a result shows of a record, and of where it stands. Apps and cells make the same.

The two stand side by side: of a member whose key changes it may be known otherwise that it keeps its place.
"""

from __future__ import annotations

from typing import Final

from xxhash import xxh3_128_digest

from quaestor.model import Document
from quaestor.planning.projected import shown_digest
from quaestor.planning.relevant_fields import Fields
from quaestor.planning.rules import Rules

_APPEARANCE: Final = 16
"""Bytes of the digest of what is shown."""


def member_digest(rules: Rules, record: Document) -> bytes:
    """The digest of a member, by its record; empty: not known. Without a sort what the filter reads may be the order."""
    shown = shown_digest(rules.shown, record)
    if shown is None:
        return b""
    order = Fields(tuple(path for path, _ in rules.sort)) if rules.sort else rules.placing
    return xxh3_128_digest(shown + rules.tied.seen(record)) + xxh3_128_digest(order.seen(record))


def look_the_same(one: bytes, other: bytes) -> bool:
    """Whether two records of these digests look the same to a reader of the result, wherever they stand in it."""
    return len(one) == len(other) > _APPEARANCE and one[:_APPEARANCE] == other[:_APPEARANCE]
