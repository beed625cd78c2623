"""The replay emits a recorded flight's events in order, and its writes end in the recorded state."""

from __future__ import annotations

import ast
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pymongo
import pytest

from quaestor.demo import replay

AT_NOON = datetime(2013, 7, 4, 16, 0, tzinfo=UTC)


def flight(number: int = 1, *, delay: int | None = 0, arrived: bool = True) -> dict[str, Any]:
    document: dict[str, Any] = {
        "_id": f"2013-07-04:XX:{number}:JFK",
        "origin": "JFK",
        "dest": "BOS",
        "scheduled": AT_NOON,
        "status": "cancelled",
    }
    if delay is not None:
        departed = AT_NOON + timedelta(minutes=delay)
        document |= {"status": "departed", "departed": departed, "dep_delay": delay}
        if arrived:
            document |= {
                "status": "arrived",
                "arrived": departed + timedelta(hours=1),
                "arr_delay": delay,
                "air_time": 50,
            }
    return document


@pytest.mark.parametrize(
    ("recorded", "story"),
    [
        (flight(), [("scheduled", -180), ("boarding", -30), ("departed", 0), ("arrived", 60)]),
        (
            flight(delay=90),
            [("scheduled", -180), ("delayed", -45), ("boarding", 60), ("departed", 90), ("arrived", 150)],
        ),
        (flight(delay=-6), [("scheduled", -180), ("boarding", -36), ("departed", -6), ("arrived", 54)]),
        (flight(delay=0, arrived=False), [("scheduled", -180), ("boarding", -30), ("departed", 0)]),
        (flight(delay=None), [("scheduled", -180), ("cancelled", -45)]),
    ],
    ids=["on time", "late", "early", "diverted", "cancelled"],
)
def test_events_follow_the_record(recorded: dict[str, Any], story: list[tuple[str, int]]) -> None:
    events = [(event.kind, (event.at - AT_NOON) // timedelta(minutes=1)) for event in replay.events(recorded)]
    assert events == story


def test_the_last_event_leaves_the_flight_as_recorded_and_the_first_without_hindsight() -> None:
    recorded = flight(delay=90)
    document: dict[str, Any] = {}
    events = replay.events(recorded)
    assert events[0].fields == {k: recorded[k] for k in ("_id", "origin", "dest", "scheduled")} | {
        "status": "scheduled"
    }
    for event in events:
        document |= event.fields
    assert document == recorded | {"expected": recorded["departed"]}


def test_a_played_day_ends_in_the_recorded_state_at_the_recorded_pace(mongo_url: str, prefix: str) -> None:
    recorded = [flight(1), flight(2, delay=90), flight(3, delay=None), flight(4, arrived=False)]
    waits: list[float] = []
    client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(mongo_url, tz_aware=True)
    with client:
        day = [event for departure in recorded for event in replay.events(departure)]
        played = replay.play(client[prefix], day, speed=60, now_s=lambda: sum(waits), sleep=waits.append)
        assert played == len(day)
        for departure in recorded:
            record = client[prefix].flights.find_one({"_id": departure["_id"]}, {"expected": 0})
            assert record == departure
        assert client[prefix].clock.find_one() == {"_id": "clock", "at": AT_NOON + timedelta(minutes=150)}
        client.drop_database(prefix)
    assert sum(waits) == pytest.approx(180)  # from 11:30, when the first boards, to 14:30, at a minute a second


def test_an_empty_recording_and_a_wild_speed_are_refused(
    mongo_url: str, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay.main([mongo_url, prefix]) == 2
    assert "recorded_day is empty" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        replay.main([mongo_url, prefix, "--speed", "1e9"])


def test_the_replay_knows_nothing_of_quaestor() -> None:
    tree = ast.parse(Path(replay.__file__).read_text())
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    assert not {name for name in imported if name.split(".")[0] in {"quaestor", "middleware", "cdn_adapters"}}
