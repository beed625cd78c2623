"""How far the next batch reads: bounded in entries and bytes, and to the same moment in every pipeline.

Because no pipeline is read past the moment that another one has reached, the rows of a batch are never older, by the event
layer's clock, than those of the batch before: however far behind a job is, nothing it reads is late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from quaestor.clock import Clock, system_clock
from quaestor.errors import EventLayerError, EventLayerResetError
from quaestor.invalidation.event_layer import offsets
from quaestor.invalidation.event_layer.codec import decode_image
from quaestor.model import AfterImage, GridShape
from quaestor.statistics.counted import CountedRedisEventLayer
from quaestor.statistics.pipelines import Carries, Pipeline, ordered, pipelines, shapes
from quaestor.statistics.positions import Position, Positions
from quaestor.statistics.repeats import Seen

AT_ONCE: Final = 500
_FEWEST: Final = 100
_FORGET_AFTER_MS: Final = 600_000
"""A grid that was replaced, and whose pipelines have been silent for so long, is not asked for any more."""


class _Step(NamedTuple):
    """One entry, as planning needs it."""

    at_ms: int
    offset: str
    number: int | None
    image: AfterImage | None


class _Scan(NamedTuple):
    steps: list[_Step]
    exhausted: bool
    fresh: Position
    """Where to go on from if there are no steps."""


class Planner:
    """Plans batches for one kind of reader. Reads each entry once, keeps none."""

    def __init__(
        self,
        layer: CountedRedisEventLayer,
        deployment: str,
        wanted: frozenset[Carries],
        *,
        most_bytes: int,
        clock: Clock = system_clock,
    ) -> None:
        self._layer = layer
        self._deployment = deployment
        self._wanted = wanted
        self._most_bytes = most_bytes
        self._clock = clock

    def advance(self, start: Positions, *, most_entries: int) -> Positions:
        """Positions to read up to. Raises EventLayerError. O(entries)."""
        known = ordered((*start.shapes, *shapes(self._layer, self._deployment)))
        found = pipelines(self._deployment, known, self._wanted)
        if not found:
            return start
        each = max(most_entries // len(found), _FEWEST)
        each_bytes = max(self._most_bytes // len(found), 1)
        scans = {one.stream: self._scan(one, start.of(one.stream), each, each_bytes) for one in found}
        behind = [scan.steps[-1].at_ms for scan in scans.values() if not scan.exhausted and scan.steps]
        until_ms = min(behind, default=None)
        reached = {one.stream: _reached(one, start.of(one.stream), scans[one.stream], until_ms) for one in found}
        return self._without_the_replaced(Positions(shapes=known, streams=reached), start, found)

    def _scan(self, pipeline: Pipeline, start: Position, most: int, most_bytes: int) -> _Scan:
        try:
            return self._scanned(pipeline, start, most, most_bytes)
        except EventLayerResetError:
            beginning = self._layer.offset_at(pipeline.stream, 0)
            return self._scanned(pipeline, replace(start, offset=beginning, count=None), most, most_bytes)

    def _scanned(self, pipeline: Pipeline, start: Position, most: int, most_bytes: int) -> _Scan:
        steps: list[_Step] = []
        after, count, size = start.offset, start.count, 0
        while True:
            wanted = min(AT_ONCE, most - len(steps))
            if wanted <= 0 or size >= most_bytes:
                return _Scan(steps, False, start)
            chunk = self._layer.read_counted(pipeline.stream, after, count=wanted)
            if chunk.broken:
                count = chunk.before if count is None or chunk.before is None else max(count, chunk.before)
            for entry in chunk.entries:
                count = None if count is None else count + 1
                size += len(entry.payload)
                image = _image(entry.payload) if pipeline.carries is Carries.WRITES else None
                steps.append(_Step(offsets.appended_at_ms(entry.offset), entry.offset, count, image))
                after = entry.offset
            if len(chunk.entries) < wanted:
                return _Scan(steps, True, start)

    def _without_the_replaced(self, reached: Positions, start: Positions, found: Sequence[Pipeline]) -> Positions:
        current = set(shapes(self._layer, self._deployment))
        silent: list[GridShape] = []
        for shape in reached.shapes:
            own = [one.stream for one in found if one.shape == shape]
            positions = [reached.of(stream) for stream in own]
            if shape in current or any(reached.of(stream) != start.of(stream) for stream in own):
                continue
            if all(self._clock() - offsets.appended_at_ms(one.offset) > _FORGET_AFTER_MS for one in positions):
                silent.append(shape)
        gone = {one.stream for one in found if one.shape in silent}
        return Positions(
            shapes=tuple(shape for shape in reached.shapes if shape not in silent),
            streams={stream: position for stream, position in reached.streams.items() if stream not in gone},
        )


def _reached(pipeline: Pipeline, start: Position, scan: _Scan, until_ms: int | None) -> Position:
    taken = [step for step in scan.steps if until_ms is None or step.at_ms <= until_ms]
    if not taken:
        return scan.fresh
    last = taken[-1]
    if pipeline.carries is not Carries.WRITES:
        return Position(offset=last.offset, count=last.number)
    seen = Seen(start)
    for step in taken:
        if step.image is not None:
            seen.repeated(step.image)
    return seen.at(last.offset, last.number)


def _image(payload: bytes) -> AfterImage | None:
    try:
        return decode_image(payload)
    except EventLayerError:
        return None  # whoever reads it says so
