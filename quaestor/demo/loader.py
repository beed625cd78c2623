"""Loader of the demo's documents into a MongoDB database.

Flights before the replayed day are stored as they happened, flights after it as announced. The flights of the day itself wait in
the collection `recorded_day`; the replay writes them from there. `timetable` has the same flights as though the day began now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Any

import pymongo
from pymongo.database import Database
from pymongo.errors import PyMongoError

from quaestor.demo import dataset
from quaestor.errors import ConfigurationError, DatabaseError

Document = dict[str, Any]
Progress = Callable[[int], None]
"""Function that receives the number of loaded flights."""

_BATCH = 4_000
_INDEXES: dict[str, list[list[tuple[str, int]]]] = {
    "flights": [
        [("origin", 1), ("status", 1), ("scheduled", 1), ("_id", 1)],
        [("origin", 1), ("carrier", 1), ("dest", 1)],
        [("day", 1), ("dep_delay", -1), ("_id", 1)],
    ],
    "timetable": [[("origin", 1), ("departs", 1), ("_id", 1)], [("departs", 1)]],
    "weather": [[("origin", 1), ("at", 1)]],
}


def check_day(day: str) -> str:
    """Check a day and return it. Raises ConfigurationError unless it is a day of 2013 written YYYY-MM-DD."""
    try:
        parsed = date.fromisoformat(day)
    except ValueError as error:
        raise ConfigurationError(f"{day!r} is not a day: write it like 2013-07-04") from error
    if parsed.year != 2013:
        raise ConfigurationError(f"the flights are those of 2013, {day} is not in it; try 2013-07-04")
    return parsed.isoformat()


def load(
    database: Database[Document], *, day: str, around_days: int | None = None, progress: Progress = lambda loaded: None
) -> int:
    """Load everything (about 15 s), or only the flights up to `around_days` before and after `day`.

    The collections must not exist yet. Images are recorded on `flights` (changeStreamPreAndPostImages), so that change
    events carry the exact document before and after each write. Returns the number of flights loaded, the day's included.
    Raises ConfigurationError for a bad day, and DatabaseError if MongoDB fails.
    """
    check_day(day)
    first, last = _span(day, around_days)
    try:
        for name in dataset.SMALL_TABLES:
            database[name].insert_many(list(dataset.small_table(name)), ordered=False)
        loaded = _load_flights(database, day, first, last, progress)
        for name, indexes in _INDEXES.items():
            database[name].create_indexes([pymongo.IndexModel(keys) for keys in indexes])
        database.command("collMod", "flights", changeStreamPreAndPostImages={"enabled": True})
    except PyMongoError as error:
        raise DatabaseError(f"loading the flights into {database.name!r} failed: {error}") from error
    return loaded


def _span(day: str, around_days: int | None) -> tuple[str, str]:
    if around_days is None:
        return "2013-01-01", "2013-12-31"
    middle = date.fromisoformat(day)
    return (middle - timedelta(days=around_days)).isoformat(), (middle + timedelta(days=around_days)).isoformat()


def _load_flights(database: Database[Document], day: str, first: str, last: str, progress: Progress) -> int:
    """Load the flights. Conversion and insertion overlap, because the driver waits for the server outside the interpreter
    lock."""
    recorded_day: list[Document] = []
    loaded = 0
    with ThreadPoolExecutor(max_workers=1) as inserter:
        waiting: Future[Any] | None = None
        for batch in _batches(_as_of(day, _within(dataset.recorded_flights(), first, last), recorded_day)):
            if waiting is not None:
                waiting.result()
            waiting = inserter.submit(database.flights.insert_many, batch, ordered=False)
            loaded += len(batch)
            progress(loaded)
        if waiting is not None:
            waiting.result()
    if recorded_day:
        database.recorded_day.insert_many(recorded_day)
        database.timetable.insert_many(timetable(recorded_day, now=datetime.now(UTC)))
    return loaded + len(recorded_day)


def timetable(flights: Iterable[Document], *, now: datetime) -> list[Document]:
    """Return the announced flights of a day, moved so that the first one departs now. Pure."""
    ordered = sorted(flights, key=lambda flight: (flight["scheduled"], flight["_id"]))
    first: datetime = ordered[0]["scheduled"]
    return [
        {name: flight[name] for name in ("_id", "origin", "dest", "carrier", "flight")}
        | {"departs": now + (flight["scheduled"] - first)}
        for flight in ordered
    ]


def _within(flights: Iterable[Document], first: str, last: str) -> Iterator[Document]:
    return (flight for flight in flights if first <= flight["day"] <= last)


def _as_of(day: str, flights: Iterable[Document], recorded_day: list[Document]) -> Iterator[Document]:
    """Flights as they are known in the morning of `day`; the day's own flights go to recorded_day instead."""
    for flight in flights:
        if flight["day"] == day:
            recorded_day.append(flight)
        else:
            yield flight if flight["day"] < day else dataset.announced(flight)


def _batches(flights: Iterator[Document]) -> Iterator[list[Document]]:
    while batch := list(islice(flights, _BATCH)):
        yield batch
