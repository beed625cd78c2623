"""Look back into a results pipeline: only changes that lead to the position without a hole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from quaestor.clock import system_clock
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.incremental import ResultEvent
from quaestor.model import MatchType
from quaestor.ports import StreamEntry
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
    changes = look_back.LookBack(layer, system_clock).changes("results", "q", HERE, **{"wanted": 1} | options)
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


class CountedLayer(MemoryEventLayer):
    """A memory layer that counts the entries that it returns."""

    returned = 0

    def read(self, positions: Mapping[str, str], *, count: int, block_ms: int) -> list[StreamEntry]:
        entries = super().read(positions, count=count, block_ms=block_ms)
        self.returned += len(entries)
        return entries


def test_queries_that_come_back_together_share_one_reading() -> None:
    """Each entry is read once, whatever the number of queries; entries that come later are read on."""
    layer = CountedLayer()
    looks = look_back.LookBack(layer, system_clock)
    names = [f"q{number}" for number in range(30)]
    layer.append("results", [change(sequence, query_id=name) for sequence in range(1, 6) for name in names])
    for name in names:
        assert len(looks.changes("results", name, HERE, wanted=1)) == HERE.sequence
    assert layer.returned == 30 * HERE.sequence
    layer.append("results", [change(6, query_id="q0")])
    later = looks.changes("results", "q0", Step(epoch="e", sequence=6, version=0), wanted=6)
    assert [each.sequence for each in later] == [6]
    assert layer.returned == 30 * HERE.sequence + 1


def test_a_look_without_calls_is_forgotten() -> None:
    now_ms = [system_clock()]
    layer = CountedLayer()
    looks = look_back.LookBack(layer, lambda: now_ms[0])
    layer.append("results", [change(5)])
    for passed_ms, read in ((0, 1), (1_000, 1), (10_000, 2)):
        now_ms[0] += passed_ms
        looks.forget()
        assert len(looks.changes("results", "q", HERE, wanted=5)) == 1
        assert layer.returned == read
