"""Look back into a results pipeline: changes of a query from before this process followed the query."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from quaestor.clock import system_clock
from quaestor.errors import EventLayerError
from quaestor.ports import EventLayer
from quaestor.realtime.codec import decode_result
from quaestor.realtime.messages import ResultChange
from quaestor.realtime.notices import Step
from quaestor.realtime.pipeline_reader import LOOK_BACK_MS

_WINDOWS_MS: Final = (2_000, 10_000, 60_000)
"""Lengths of the looks: most clients come back within a moment, and a short look reads few entries of other queries."""
_AT_ONCE: Final = 1_000
_MOST_ENTRIES: Final = 20_000


def earlier_changes(
    layer: EventLayer, stream: Callable[[], str], query_id: str, position: Step, *, wanted: int
) -> list[ResultChange]:
    """Return the changes of a query that lead to a position, without a hole, the oldest first.

    stream: the results pipeline of the query.
    wanted: number of the oldest change that is needed. Fewer changes come if the pipeline has lost older ones, or if a look
        meets 20,000 entries.

    Reads up to three times. Raises no error: without an event layer there are no changes.
    """
    changes: list[ResultChange] = []
    with suppress(EventLayerError):
        for window_ms in _WINDOWS_MS:
            at_ms = system_clock() - window_ms - LOOK_BACK_MS
            changes = _without_holes(_read(layer, stream(), query_id, position, at_ms=at_ms), position.sequence)
            if changes and changes[0].sequence <= wanted:
                break
    return changes


def _read(layer: EventLayer, stream: str, query_id: str, position: Step, *, at_ms: int) -> dict[int, ResultChange]:
    """Return the changes since a moment, by number, up to the position."""
    changes: dict[int, ResultChange] = {}
    offset = layer.offset_at(stream, at_ms)
    for _ in range(_MOST_ENTRIES // _AT_ONCE):
        entries = layer.read({stream: offset}, count=_AT_ONCE, block_ms=0)
        for entry in entries:
            message = decode_result(entry.payload)
            if not isinstance(message, ResultChange) or (message.query_id, message.epoch) != (query_id, position.epoch):
                continue
            if message.sequence <= position.sequence:
                changes[message.sequence] = message
            if message.sequence >= position.sequence:
                return changes
        if len(entries) < _AT_ONCE:
            return changes
        offset = entries[-1].offset
    return {}


def _without_holes(changes: dict[int, ResultChange], newest: int) -> list[ResultChange]:
    oldest = newest
    while oldest in changes:
        oldest -= 1
    return [changes[number] for number in range(oldest + 1, newest + 1)]
