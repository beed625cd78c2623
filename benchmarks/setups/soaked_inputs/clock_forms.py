"""Forms in which handlers compute a constant from the present time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import bson

TOKYO = timezone(timedelta(hours=9))
HOUR = timedelta(hours=1)

RELATIVE: dict[str, Callable[[datetime], Any]] = {
    "an hour ago": lambda now: now - HOUR,
    "an hour ago, without a fraction": lambda now: now.replace(microsecond=0) - HOUR,
    "an hour ago, naive": lambda now: now.replace(tzinfo=None) - HOUR,
    "epoch seconds": lambda now: int(now.timestamp()) - 3600,
    "epoch float": lambda now: now.timestamp() - 3600,
    "epoch milliseconds": lambda now: int(now.timestamp() * 1000) - 86_400_000,
    "ObjectId of 30 s ago": lambda now: bson.ObjectId.from_datetime(now - timedelta(seconds=30)),
    "ISO": lambda now: (now - timedelta(days=7)).isoformat(),
    "ISO without a zone": lambda now: (now - timedelta(days=7)).strftime("%Y-%m-%dT%H:%M:%S"),
    "time of day": lambda now: now.strftime("%H:%M:%S"),
    "time of day in Tokyo": lambda now: now.astimezone(TOKYO).strftime("%H:%M:%S"),
}
"""Forms that move with the clock: never cached."""
FLOORED: dict[str, Callable[[datetime], Any]] = {
    "this minute": lambda now: now.replace(second=0, microsecond=0),
    "HH:MM": lambda now: now.strftime("%H:%M"),
    "this hour": lambda now: now.replace(minute=0, second=0, microsecond=0),
    "24 hours before this hour": lambda now: now.replace(minute=0, second=0, microsecond=0) - 24 * HOUR,
    "today's midnight": lambda now: now.replace(hour=0, minute=0, second=0, microsecond=0),
    "today's midnight, naive": lambda now: datetime(now.year, now.month, now.day),
    "midnight in Tokyo": lambda now: now.astimezone(TOKYO).replace(hour=0, minute=0, second=0, microsecond=0),
    "30 days before today": lambda now: datetime(now.year, now.month, now.day) - timedelta(days=30),
    "the first of the month": lambda now: datetime(now.year, now.month, 1, tzinfo=UTC),
    "today": lambda now: now.date().isoformat(),
    "today in Tokyo": lambda now: now.astimezone(TOKYO).date().isoformat(),
    "month": lambda now: now.strftime("%Y-%m"),
    "slot of 15 minutes": lambda now: int(now.timestamp()) // 900,
    "slot of 15 minutes, as a time": lambda now: now.replace(minute=now.minute // 15 * 15, second=0, microsecond=0),
    "day number": lambda now: int(now.timestamp()) // 86_400,
}
"""Forms floored to a unit: cached until the unit ends."""
