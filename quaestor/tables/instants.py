"""Instants as datetimes: an instant is an integer, microseconds since 1970 in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)


def instant_of(when: datetime) -> int:
    """Return the instant of a datetime; without a zone it is UTC."""
    return ((when.replace(tzinfo=UTC) if when.tzinfo is None else when) - _EPOCH) // _TICK


def datetime_of(instant: int) -> datetime:
    """Return an instant as a datetime in UTC."""
    return _EPOCH + instant * _TICK
