"""A result's copy in an app process follows the stage, although messages come twice, late, or not at all."""

from __future__ import annotations

import random
from typing import Any

import pytest

from quaestor.incremental import ResultEvent, replay
from quaestor.incremental.events import Shown as Row
from quaestor.incremental.events import differences
from quaestor.realtime.messages import FullResult, ResultChange
from quaestor.realtime.replica import OutOfStepError, Replica

Rows = list[tuple[int, Any]]


class Source:
    """A stage's messages about a result that changes at random."""

    def __init__(self, seed: int, *, ordered: bool) -> None:
        self.random = random.Random(seed)
        self.ordered = ordered
        self.rows: Rows = []
        self.sequence = 0
        self.epoch = "e1"

    def step(self) -> ResultChange:
        draw = self.random
        new = [(key, draw.randrange(3)) for key in draw.sample(range(8), draw.randrange(6))]
        if not self.ordered:
            new.sort()
        events = differences(self._shown(self.rows), self._shown(new), ordered=self.ordered)
        self.rows = new
        self.sequence += 1
        return ResultChange(
            query_id="q", epoch=self.epoch, sequence=self.sequence, version=0, written_at_ms=0, events=tuple(events)
        )

    def shown(self, ids: tuple[str, ...] | None) -> FullResult:
        return FullResult(
            query_id="q", subscription_ids=ids, epoch=self.epoch, sequence=self.sequence, version=0,
            ordered=self.ordered, rows=tuple(self.rows),
        )  # fmt: skip

    @staticmethod
    def _shown(rows: Rows) -> list[Row]:
        return [Row(("n", key), key, value) for key, value in rows]


def comparable(rows: Any, *, ordered: bool) -> Any:
    return list(rows) if ordered else sorted(rows)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_copy_and_the_subscriber_s_list_are_the_result_after_any_lost_or_repeated_messages(ordered: bool) -> None:
    """A lost step is noticed at the next one; a repeated one changes nothing; a new epoch arrives as differences."""
    noticed = 0
    for seed in range(150):
        source, copy = Source(seed, ordered=ordered), Replica("me")
        rows: Rows = []
        history: list[ResultChange] = []

        def tell(events: Any) -> None:
            nonlocal rows
            assert all(isinstance(event, ResultEvent) for event in events)
            rows = replay(rows, events)

        source.step()
        assert copy.replace(source.shown(("somebody else",))) is None, "not for us, and we know nothing"
        tell(copy.replace(source.shown(("me",))) or ())
        for _ in range(30):
            step = source.step()
            history.append(step)
            what = source.random.random()
            if what < 0.15:
                continue  # lost
            if what < 0.25:
                source.epoch, source.sequence = source.epoch + "1", 0
                history.clear()
                tell(copy.replace(source.shown(None)) or ())
                continue
            if what < 0.4 and len(history) > 1:
                tell(copy.apply(history[0]) if history[0].sequence <= copy.sequence else ())
            try:
                tell(copy.apply(step))
            except OutOfStepError as error:
                noticed += 1
                tell(error.applied)
                tell(copy.replace(source.shown(("me",))) or ())
            assert comparable(copy.rows(), ordered=ordered) == comparable(source.rows, ordered=ordered)
            assert comparable(rows, ordered=ordered) == comparable(source.rows, ordered=ordered)
            assert copy.replace(source.shown(("me",))) is None, "what is known is no news"
    assert noticed > 100
