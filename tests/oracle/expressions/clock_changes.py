"""Dates around the moments at which clocks are set, in zones whose rules no server's database disputes."""

from __future__ import annotations

import datetime
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

ZONES = (
    "America/New_York", "America/Los_Angeles", "America/Santiago", "America/Caracas", "America/Havana", "Europe/London",
    "Europe/Berlin", "Asia/Kolkata", "Asia/Tokyo", "Australia/Sydney", "Australia/Hobart", "Australia/Lord_Howe",
    "Pacific/Auckland", "Pacific/Easter", "Africa/Johannesburg",
)  # fmt: skip
UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond")
_FIRST = datetime.datetime(1975, 1, 1)
_SPAN_DAYS = 45 * 365


def _offset(zone: ZoneInfo, at: datetime.datetime) -> datetime.timedelta | None:
    return at.replace(tzinfo=datetime.UTC).astimezone(zone).utcoffset()


def moment(random: Random, zone: ZoneInfo) -> datetime.datetime:
    """Mostly within an hour and a half of a change of clocks."""
    early = _FIRST + datetime.timedelta(days=random.randrange(_SPAN_DAYS), minutes=30 * random.randrange(48))
    late = early + datetime.timedelta(days=200)
    before = _offset(zone, early)
    if random.random() < 0.2 or before == _offset(zone, late):
        return early
    while late - early > datetime.timedelta(minutes=1):
        middle = early + (late - early) / 2
        early, late = (middle, late) if _offset(zone, middle) == before else (early, middle)
    return late.replace(second=0, microsecond=0) + datetime.timedelta(minutes=random.randrange(-90, 91, 15))


def case(random: Random) -> tuple[list[Any], dict[str, Any]]:
    """Expressions in one zone, and the document they read."""
    name = random.choice(ZONES)
    zone = ZoneInfo(name)
    at = moment(random, zone)
    wall = at.replace(tzinfo=datetime.UTC).astimezone(zone).replace(tzinfo=None)
    wall += datetime.timedelta(minutes=random.choice((0, 30, 60, -60)))
    parts = {field: getattr(wall, field) for field in ("year", "month", "day", "hour", "minute")}
    amount = random.choice((1, -1, 0, 2, 7, 30))
    expressions = [
        {"$dateToParts": {"date": "$d", "timezone": name}},
        {"$dateToString": {"date": "$d", "timezone": name, "format": "%Y-%m-%d %H:%M %z %Z"}},
        {"$dateAdd": {"startDate": "$d", "unit": random.choice(UNITS[:5]), "amount": amount, "timezone": name}},
        {
            "$dateTrunc": {
                "date": "$d",
                "unit": random.choice(UNITS[:7]),
                "binSize": random.choice((1, 2, 5)),
                "timezone": name,
            }
        },
        {"$dateDiff": {"startDate": "$d", "endDate": "$e", "unit": random.choice(UNITS), "timezone": name}},
        {"$dateFromString": {"dateString": wall.isoformat(), "timezone": name}},
        {"$dateFromParts": {field: f"$p.{field}" for field in parts} | {"timezone": name}},
    ]
    return expressions, {"_id": 0, "d": at, "e": moment(random, zone), "p": parts}
