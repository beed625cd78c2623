"""Cause of an invalidation, as its effects need to know it."""

from __future__ import annotations

from typing import NamedTuple

from quaestor.model import Invalidated, Version
from quaestor.ports import Guarded


class Cause(NamedTuple):
    """Cause of one registration's invalidation.

    written_at_ms: of the write; None: there was none.
    refused_at_ms: since when nothing that relies on it is served.
    precision: how precisely it was judged.
    version: of the write.
    entries: that were in memory for it.
    """

    written_at_ms: int | None
    refused_at_ms: int
    precision: str
    version: Version = 0
    entries: tuple[Guarded, ...] = ()


def precision_of(one: Invalidated) -> str:
    """Precision with which an invalidation was judged, one of vocabularies.PRECISION."""
    return "exact" if one.exact else "widened"
