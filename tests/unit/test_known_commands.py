"""Commands that were understood before are understood alike; what must be looked at each time is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from bson import Binary, Int64

from quaestor.capture.commands import understand
from quaestor.capture.known_commands import KnownCommands
from quaestor.model import Uncacheable


def no_uuids() -> None:
    return None


def find(condition: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {"find": "c", "filter": condition, "$db": "d", **options}


def test_the_same_command_is_parsed_once_for_all_sessions() -> None:
    known = KnownCommands()
    first = known.understand("find", find({"x": 1}, lsid={"id": Binary(b"1" * 16, 4)}), "d", no_uuids)
    again = known.understand("find", find({"x": 1}, lsid={"id": Binary(b"2" * 16, 4)}), "d", no_uuids)
    assert again is first
    assert first == understand("find", find({"x": 1}), "d")


@pytest.mark.parametrize("other", [{"x": 2}, {"x": 1.0}, {"x": True}, {"x": Int64(1)}, {"y": 1}, {"x": 1, "y": 1}, {}])
def test_another_one_is_another_one(other: dict[str, Any]) -> None:
    known = KnownCommands()
    known.understand("find", find({"x": 1}), "d", no_uuids)
    assert known.understand("find", find(other), "d", no_uuids) == understand("find", find(other), "d")
    assert known.understand("find", find({"x": 1}), "e", no_uuids).description == "find on e.c"


def test_the_handler_may_change_what_it_has_sent() -> None:
    known = KnownCommands()
    condition: dict[str, Any] = {"x": {"$in": [1]}}
    known.understand("find", find(condition), "d", no_uuids)
    condition["x"]["$in"].append(2)
    again = known.understand("find", find({"x": {"$in": [1]}}), "d", no_uuids)
    assert again.query is not None
    assert again.query.filter == {"x": {"$in": [1]}}


def test_a_time_finer_than_the_database_keeps_is_seen_though_the_bytes_are_those_of_a_plain_one() -> None:
    known = KnownCommands()
    plain = datetime(2020, 1, 1, microsecond=5_000, tzinfo=UTC)
    assert not known.understand("find", find({"at": plain}), "d", no_uuids).reasons
    fine = known.understand("find", find({"at": plain.replace(microsecond=5_001)}), "d", no_uuids)
    assert [reason.reason for reason in fine.reasons] == [Uncacheable.CLOCK]


def test_native_uuids_are_looked_at_each_time() -> None:
    """The same value is written in other bytes by another client."""
    known, value = KnownCommands(), uuid4()
    as_standard = known.understand("find", find({"u": value}), "d", lambda: 4).query
    as_legacy = known.understand("find", find({"u": value}), "d", lambda: 3).query
    assert as_standard is not None
    assert as_legacy is not None
    assert as_standard.filter != as_legacy.filter


def test_it_does_not_grow_without_end() -> None:
    known = KnownCommands()
    for n in range(2_500):
        known.understand("find", find({"x": n}), "d", no_uuids)
    known.understand("find", find({"x": "y" * 5_000}), "d", no_uuids)
    assert 0 < len(known._known) <= 1_000
