"""Instants as timestamps: an instant is a number of microseconds since 1970, in UTC."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from quaestor.tables.instants import datetime_of

BEGINNING: Final = datetime(1, 1, 1)
"""Timestamp before every row, for the first run."""


def timestamp(instant: int) -> datetime:
    """Return an instant as a timestamp without zone."""
    return datetime_of(instant).replace(tzinfo=None)
