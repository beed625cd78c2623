"""Rows of the flight tables become the documents that the demo promises."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pymongo
import pytest

from quaestor.demo import dataset, loader
from quaestor.errors import ConfigurationError

ARRIVED = [
    "2013", "1", "1", "517", "515", "2", "830", "819", "11", "UA", "1545", "N14228", "EWR", "IAH", "227", "1400",
    "5", "15", "2013-01-01T10:00:00Z",
]  # fmt: skip


def row(**changes: str) -> list[str]:
    return [changes.get(name, value) for name, value in zip(dataset._COLUMNS, ARRIVED, strict=True)]


def test_an_arrived_flight_has_every_field_in_utc() -> None:
    assert dataset.recorded_flight(ARRIVED) == {
        "_id": "2013-01-01:UA:1545:EWR",
        "day": "2013-01-01",
        "carrier": "UA",
        "flight": 1545,
        "tailnum": "N14228",
        "origin": "EWR",
        "dest": "IAH",
        "distance": 1400,
        "scheduled": datetime(2013, 1, 1, 10, 15, tzinfo=UTC),
        "scheduled_arrival": "08:19",
        "departed": datetime(2013, 1, 1, 10, 17, tzinfo=UTC),
        "dep_delay": 2,
        "arrived": datetime(2013, 1, 1, 14, 30, tzinfo=UTC),  # 08:30 in Houston
        "arr_delay": 11,
        "air_time": 227,
        "status": "arrived",
    }


def test_a_missing_value_is_an_absent_field() -> None:
    cancelled = dataset.recorded_flight(
        row(dep_time="NA", dep_delay="NA", arr_time="NA", arr_delay="NA", air_time="NA", tailnum="NA")
    )
    assert cancelled["status"] == "cancelled"
    assert cancelled.keys().isdisjoint({"departed", "dep_delay", "arrived", "arr_delay", "air_time", "tailnum"})


def test_a_diverted_flight_departed_and_never_arrived() -> None:
    diverted = dataset.recorded_flight(row(arr_delay="NA", air_time="NA"))
    assert diverted["status"] == "departed"
    assert "departed" in diverted
    assert "arrived" not in diverted


@pytest.mark.parametrize(
    ("dep_time", "arr_time", "air_time", "expected"),
    [
        ("517", "830", 227, 253),  # New York to Houston: 3 h 13 min on the clocks; one hour more on the watch
        ("1200", "1330", 75, 90),  # no time zone between
        ("2350", "55", 50, 65),  # over midnight
        ("800", "1100", 330, 360),  # to the west coast
    ],
)
def test_gate_to_gate_time_is_found_without_knowing_the_time_zone(
    dep_time: str, arr_time: str, air_time: int, expected: int
) -> None:
    assert dataset.gate_to_gate_minutes(dep_time, arr_time, air_time) == expected


def test_an_announced_flight_knows_nothing_of_how_it_went() -> None:
    announced = dataset.announced(dataset.recorded_flight(ARRIVED))
    assert announced["status"] == "scheduled"
    assert announced.keys().isdisjoint({"departed", "dep_delay", "arrived", "arr_delay", "air_time"})


def test_the_files_hold_every_flight_under_an_id_of_its_own() -> None:
    ids = {flight["_id"] for flight in dataset.recorded_flights()}
    assert len(ids) == dataset.FLIGHTS


@pytest.mark.parametrize(
    ("table", "rows", "some_id"),
    [
        ("airports", 1458, "JFK"),
        ("airlines", 16, "UA"),
        ("planes", 3322, "N14228"),
        ("weather", 26115, "EWR:2013-01-01T06"),
    ],
)
def test_small_tables_are_complete_and_keyed_by_their_natural_key(table: str, rows: int, some_id: str) -> None:
    documents = {document["_id"]: document for document in dataset.small_table(table)}
    assert len(documents) == rows
    assert some_id in documents
    assert all("NA" not in document.values() for document in islice(documents.values(), 100))


@pytest.mark.parametrize("day", ["2013-02-30", "yesterday", "2014-01-01", ""])
def test_a_day_outside_the_data_is_refused_with_a_remedy(day: str) -> None:
    with pytest.raises(ConfigurationError, match="2013-07-04"):
        loader.check_day(day)


def test_loading_leaves_the_day_to_the_replay_and_tells_past_from_future(mongo_url: str, prefix: str) -> None:
    day = "2013-07-04"
    client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(mongo_url, tz_aware=True)
    with client:
        database = client[prefix]
        counts: list[int] = []
        loaded = loader.load(database, day=day, around_days=1, progress=counts.append)
        flights = database.flights
        assert loaded == counts[-1] + database.recorded_day.count_documents({})
        assert flights.count_documents({"day": day}) == 0
        assert database.recorded_day.count_documents({}) == database.recorded_day.count_documents({"day": day}) == 737
        assert flights.distinct("status", {"day": {"$gt": day}}) == ["scheduled"]
        assert set(flights.distinct("status", {"day": {"$lt": day}})) == {"arrived", "departed", "cancelled"}
        options = database.command("listCollections", filter={"name": "flights"})["cursor"]["firstBatch"][0]["options"]
        assert options["changeStreamPreAndPostImages"] == {"enabled": True}
        client.drop_database(prefix)
