"""Look back into a results pipeline: only changes that lead to the position without a hole."""

from __future__ import annotations

from typing import Any

import pytest

from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.incremental import ResultEvent
from quaestor.model import MatchType
from quaestor.realtime import look_back
from quaestor.realtime.codec import encode_result
from quaestor.realtime.messages import ResultChange
from quaestor.realtime.notices import Step

HERE = Step(epoch="e", sequence=5, version=0)


def change(sequence: int, query_id: str = "q", epoch: str = "e") -> bytes:
    event = ResultEvent(match_type=MatchType.ADD, key=sequence, document={"_id": sequence})
    return encode_result(
        ResultChange(
            query_id=query_id, epoch=epoch, sequence=sequence, version=sequence, written_at_ms=0, events=(event,)
        )
    )


def found(payloads: list[bytes], **options: Any) -> list[int]:
    layer = MemoryEventLayer()
    layer.append("results", payloads)
    changes = look_back.earlier_changes(layer, lambda: "results", "q", HERE, **{"wanted": 1} | options)
    return [each.sequence for each in changes]


def test_changes_of_the_query_and_its_epoch_come_in_order() -> None:
    """Other queries, other epochs, newer changes and repeated ones are left out."""
    others = [change(3, query_id="other"), change(4, epoch="d")]
    payloads = [change(2), change(3), *others, change(3), change(4), change(5), change(6)]
    assert found(payloads) == [2, 3, 4, 5]


def test_nothing_before_a_hole_comes() -> None:
    assert found([change(1), change(2), change(4), change(5)]) == [4, 5]


def test_without_the_newest_change_nothing_comes() -> None:
    """The position was reached by a full result, which no change explains."""
    assert found([change(3), change(4)]) == []


def test_a_look_that_meets_too_many_entries_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a look is bounded, whatever other queries write."""
    monkeypatch.setattr(look_back, "_AT_ONCE", 2)
    monkeypatch.setattr(look_back, "_MOST_ENTRIES", 4)
    assert found([*[change(number, query_id="other") for number in range(4)], change(5)]) == []
    assert found([*[change(number, query_id="other") for number in range(3)], change(5)]) == [5]
