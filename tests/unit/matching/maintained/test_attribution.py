"""Operations of events whose result was read anew: those of the writes, or none where writes are not known."""

from __future__ import annotations

from typing import Any

import pytest

from quaestor.incremental import ResultEvent, attribution
from quaestor.incremental.attribution import UnreadWrites
from quaestor.incremental.recomputation import plan_following
from quaestor.model import AfterImage, MatchType, Operation, Query, WriteKind

QUERY = Query(namespace="shop.items", operation=Operation.FIND, filter={"tag": "tea"})


def write(key: int, kind: WriteKind, version: int) -> AfterImage:
    return AfterImage(namespace=QUERY.namespace, kind=kind, version=version, key=key)


def operations(unread: UnreadWrites, version: int, *keys: Any) -> list[WriteKind | None]:
    """Operations of an event for each of these records, of a reading at this version."""
    events = [ResultEvent(match_type=MatchType.ADD, key=key, document={"_id": key}) for key in keys]
    return [event.operation for event in unread.attributed(events, version)]


def test_a_reading_takes_the_writes_up_to_its_version_and_leaves_the_others() -> None:
    unread = UnreadWrites(plan_following(QUERY))
    unread.note(write(1, WriteKind.INSERT, 1))
    unread.note(write(1, WriteKind.UPDATE, 2))
    unread.note(write(2, WriteKind.UPDATE, 3))
    assert operations(unread, 2, 1, 2) == [WriteKind.INSERT, None]
    assert operations(unread, 3, 1, 2) == [None, WriteKind.UPDATE]


def test_more_writes_than_are_noted_leave_events_without_operation_until_all_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A record that changes all the time does not fill the memory, and no event gets the operation of an older write."""
    monkeypatch.setattr(attribution, "_MOST_WRITES", 3)
    unread = UnreadWrites(plan_following(QUERY))
    for version in range(1, 7):
        unread.note(write(1, WriteKind.UPDATE, version))
    unread.note(write(1, WriteKind.DELETE, 7))
    assert not unread._writes
    assert operations(unread, 6, 1) == [None]
    unread.note(write(2, WriteKind.INSERT, 8))
    assert operations(unread, 8, 1, 2) == [None, None]
    unread.note(write(3, WriteKind.INSERT, 9))
    assert operations(unread, 9, 3) == [WriteKind.INSERT]
