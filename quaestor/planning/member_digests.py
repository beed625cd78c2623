"""Digests of members: of what a result shows of a record, and of where it stands. Apps and cells make the same."""

from __future__ import annotations

from xxhash import xxh3_128_digest

from quaestor.model import Document
from quaestor.planning.projected import shown_digest
from quaestor.planning.relevant_fields import Fields
from quaestor.planning.rules import Rules


def member_digest(rules: Rules, record: Document) -> bytes:
    """The digest of a member, by its record; empty: not known. Without a sort what the filter reads may be the order."""
    shown = shown_digest(rules.shown, record)
    if shown is None:
        return b""
    order = Fields(tuple(path for path, _ in rules.sort)) if rules.sort else rules.placing
    return xxh3_128_digest(shown + order.seen(record) + rules.tied.seen(record))
