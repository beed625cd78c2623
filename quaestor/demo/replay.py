"""Replay of the recorded day as live writes, with plain pymongo: an ordinary other program that writes to the database.

The program runs as a process of its own, and imports nothing of Quaestor. The collection `recorded_day` holds the day's flights,
as they happened. The program writes them to `flights` as the day passes. A flight is scheduled (inserted) three hours ahead,
perhaps announced as delayed or cancelled, boards, departs, arrives. The times of departure and arrival are the recorded ones;
fixed rules derive the times of the announcements from them. `clock` holds the time on that day.

    python replay.py mongodb://127.0.0.1:27017/?replicaSet=rs0 demo --speed 60
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import pymongo
from pymongo.database import Database

Document = dict[str, Any]

MAX_SPEED = 3_600.0
"""Highest speed: a day in 24 s, with about 150 writes a second."""
SCHEDULED_AHEAD = timedelta(hours=3)
DELAY_ANNOUNCED_AHEAD = timedelta(minutes=45)
BOARDING_AHEAD = timedelta(minutes=30)
WORTH_ANNOUNCING_MINUTES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Event of one flight: a new fact about it.

    kind: scheduled, delayed, cancelled, boarding, departed or arrived; the flight's status from then on.
    fields: fields that are set on the flight; the whole document for scheduled.
    """

    at: datetime
    kind: str
    flight_id: str
    fields: Mapping[str, Any]


def events(flight: Mapping[str, Any]) -> list[Event]:
    """Events of a recorded flight: the facts that become known about it, in order of time. Pure."""
    scheduled: datetime = flight["scheduled"]
    hindsight = ("status", "departed", "dep_delay", "arrived", "arr_delay", "air_time")
    announced = {name: value for name, value in flight.items() if name not in hindsight} | {"status": "scheduled"}
    changes = [(scheduled - SCHEDULED_AHEAD, "scheduled", announced)]
    departed: datetime | None = flight.get("departed")
    if departed is None:
        changes.append((scheduled - DELAY_ANNOUNCED_AHEAD, "cancelled", {"status": "cancelled"}))
    else:
        if flight["dep_delay"] >= WORTH_ANNOUNCING_MINUTES:
            expected = {"status": "delayed", "expected": departed}
            changes.append((scheduled - DELAY_ANNOUNCED_AHEAD, "delayed", expected))
        changes.append((departed - BOARDING_AHEAD, "boarding", {"status": "boarding"}))
        changes.append((departed, "departed", _taken(flight, "departed", "dep_delay")))
        if "arrived" in flight:
            changes.append((flight["arrived"], "arrived", _taken(flight, "arrived", "arr_delay", "air_time")))
    return [
        Event(at=at, kind=kind, flight_id=flight["_id"], fields=fields)
        for at, kind, fields in sorted(changes, key=lambda event: event[0])
    ]


def _taken(flight: Mapping[str, Any], status: str, *names: str) -> Document:
    return {"status": status} | {name: flight[name] for name in (status, *names)}


def apply(database: Database[Document], kind: str, group: list[Event]) -> None:
    """Write events of one kind that happen at the same moment. Each kind is written in a way that applications use."""
    flights = database.flights
    if kind == "scheduled":
        flights.insert_many([dict(event.fields) for event in group])
    elif kind == "cancelled":
        flights.update_many({"_id": {"$in": [event.flight_id for event in group]}}, {"$set": dict(group[0].fields)})
    elif kind == "boarding":
        for event in group:
            flights.find_one_and_update({"_id": event.flight_id}, {"$set": dict(event.fields)})
    elif kind == "arrived":
        flights.bulk_write(
            [pymongo.UpdateOne({"_id": event.flight_id}, {"$set": dict(event.fields)}) for event in group]
        )
    else:
        for event in group:
            flights.update_one({"_id": event.flight_id}, {"$set": dict(event.fields)})


def play(
    database: Database[Document],
    day: Iterable[Event],
    *,
    speed: float,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Play one day, `speed` times as fast as it was. Facts known before the first flight boards are written at once.

    Returns the number of events. Time is an argument, so that tests control it.
    """
    ordered = sorted(day, key=lambda event: (event.at, event.kind))
    began = next((event.at for event in ordered if event.kind == "boarding"), ordered[0].at)
    started_s = now_s()
    for (at, kind), members in groupby(ordered, key=lambda event: (max(event.at, began), event.kind)):
        wait_s = (at - began).total_seconds() / speed - (now_s() - started_s)
        if wait_s > 0:
            sleep(wait_s)
        apply(database, kind, list(members))
        database.clock.update_one({"_id": "clock"}, {"$set": {"at": at}}, upsert=True)
    return len(ordered)


def main(arguments: list[str] | None = None) -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(description="Replays the recorded day as live writes.")
    parser.add_argument("url")
    parser.add_argument("database")
    parser.add_argument("--speed", type=float, default=60.0, help="how many times as fast as the real day")
    parser.add_argument("--laps", type=int, default=1, help="how often; between two, the day's flights are deleted")
    options = parser.parse_args(arguments)
    if not 0 < options.speed <= MAX_SPEED:
        parser.error(f"--speed lies between 0 and {MAX_SPEED:.0f}, not {options.speed}")
    client: pymongo.MongoClient[Document] = pymongo.MongoClient(options.url, tz_aware=True)
    database = client[options.database]
    with client:
        recorded = list(database.recorded_day.find())
        if not recorded:
            print(f"nothing to replay: {options.database}.recorded_day is empty", file=sys.stderr)
            return 2
        day = [event for flight in recorded for event in events(flight)]
        for _ in range(options.laps):
            database.flights.delete_many({"_id": {"$in": [flight["_id"] for flight in recorded]}})
            play(database, day, speed=options.speed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
