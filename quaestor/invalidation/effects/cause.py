"""Cause of an invalidation, for its effects."""

from __future__ import annotations

from typing import NamedTuple

from quaestor.model import Invalidated, Version
from quaestor.ports import Guarded


class Cause(NamedTuple):
    """Cause of one registration's invalidation.

    written_at_ms: time of the write; None: there was no write.
    refused_at_ms: time from which no entry that relies on the registration is served.
    precision: how precisely the write was judged, one of vocabularies.PRECISION.
    version: version of the write.
    entries: entries in memory that the registration guarded.
    """

    written_at_ms: int | None
    refused_at_ms: int
    precision: str
    version: Version = 0
    entries: tuple[Guarded, ...] = ()


def precision_of(invalidated: Invalidated) -> str:
    """Precision with which an invalidation was judged, one of vocabularies.PRECISION."""
    return "exact" if invalidated.exact else "widened"
