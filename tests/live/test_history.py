"""Which events a client receives that comes back: those behind its position, or the whole result where they are not all known."""

from __future__ import annotations

from typing import Any

import pytest

from quaestor.incremental import ResultEvent
from quaestor.live.websocket.events import SharedMatch
from quaestor.live.websocket.history import History
from quaestor.live.websocket.positions import Position
from quaestor.model import MatchType


def history(begun: Position, *, most_events: int = 100) -> History:
    return History(begun, most_events=most_events, most_characters=10_000)


def happen(kept: History, epoch: str, sequence: int, events: int = 1, follower: str = "here") -> None:
    """One change with so many events."""
    for number in range(1, events + 1):
        inside = number < events
        position = Position(epoch, sequence, number if inside else 0, follower if inside else "")
        kept.add(match(position), 10)
    if not events:
        kept.advance(Position(epoch, sequence))


def match(position: Position) -> SharedMatch:
    event = ResultEvent(match_type=MatchType.ADD, key=position.token, document={"_id": position.token}, version=1)
    return SharedMatch(event, before=None, position=position, version=1, bucket="items", now_ms=0)


def missed(kept: History, token: str) -> list[str] | None:
    found = kept.missed(token)
    return None if found is None else [match.position.token for match in found]


def test_a_client_receives_what_it_missed() -> None:
    kept = history(Position("e1", 10))
    happen(kept, "e1", 11)
    happen(kept, "e1", 12, events=3)
    happen(kept, "e1", 13, events=0)
    assert missed(kept, "e1/10") == ["e1/11", "e1/12/1/here", "e1/12/2/here", "e1/12"]
    assert missed(kept, "e1/12/1/here") == ["e1/12/2/here", "e1/12"]
    assert missed(kept, "e1/12") == []
    assert missed(kept, "e1/13") == []


@pytest.mark.parametrize("token", ["e1/9", "e1/14", "e0/12", "e2/12", "", "e1/x", "e1/12/1", "e1/12/3/here"])
def test_a_position_that_is_not_known_leads_nowhere(token: str) -> None:
    kept = history(Position("e1", 10))
    happen(kept, "e1", 11)
    happen(kept, "e1", 12, events=3)
    happen(kept, "e1", 13)
    assert missed(kept, token) is None


def test_a_position_inside_a_change_is_known_to_its_own_follower_only() -> None:
    """Another process may have received the same changes as one difference, divided in another way."""
    kept = history(Position("e1", 10))
    happen(kept, "e1", 11, events=3)
    assert missed(kept, "e1/11/2/here") == ["e1/11"]
    assert missed(kept, "e1/11/2/elsewhere") is None


def test_a_position_inside_a_jump_leads_nowhere() -> None:
    """Changes 11 to 20 arrived as one difference. A client that has seen change 15 elsewhere would receive a part of it again."""
    kept = history(Position("e1", 10))
    happen(kept, "e1", 20, events=2)
    happen(kept, "e1", 21)
    assert missed(kept, "e1/10") == ["e1/20/1/here", "e1/20", "e1/21"]
    assert missed(kept, "e1/15") is None
    assert missed(kept, "e1/20/1/here") == ["e1/20", "e1/21"]
    assert missed(kept, "e1/20") == ["e1/21"]


def test_a_new_epoch_that_was_entered_late_is_known_from_there() -> None:
    kept = history(Position("e1", 10))
    happen(kept, "e2", 7)
    assert missed(kept, "e1/10") == ["e2/7"]
    assert missed(kept, "e1/11") is None
    assert missed(kept, "e2/3") is None
    assert missed(kept, "e2/7") == []


def test_dropped_events_are_not_known() -> None:
    kept = history(Position("e1", 10), most_events=2)
    for sequence in (11, 12, 20, 21):
        happen(kept, "e1", sequence)
    assert missed(kept, "e1/11") is None
    assert missed(kept, "e1/12") == ["e1/20", "e1/21"]
    assert missed(kept, "e1/15") is None


def test_jumps_without_events_are_bounded_too() -> None:
    kept = history(Position("e0000", 1), most_events=5)
    for number in range(1, 100):
        happen(kept, f"e{number:04}", 1, events=0)
    jumps: Any = kept._jumps
    assert len(jumps) <= 6
    assert missed(kept, "e0000/1") is None
    assert missed(kept, "e0099/1") == []
