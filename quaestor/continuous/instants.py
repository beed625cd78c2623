"""Instants as timestamps: an instant is a number of microseconds since 1970, in UTC."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1)
BEGINNING: Final = datetime(1, 1, 1)
"""Timestamp before every row, for the first run."""


def timestamp(instant: int) -> datetime:
    """Return an instant as a timestamp without zone."""
    return EPOCH + timedelta(microseconds=instant)
