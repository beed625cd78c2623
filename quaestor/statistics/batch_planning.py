"""Batch planning: the end of the next batch, bounded in entries and bytes, at the same moment in every pipeline.

No pipeline is read past the moment that another one has reached. The rows of a batch are therefore never older, by the event
layer's clock, than those of the batch before. However far behind a job is, none of its rows is late.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from quaestor.clock import Clock, system_clock
from quaestor.errors import EventLayerError, EventLayerResetError
from quaestor.event_layer import offsets
from quaestor.event_layer.codec import decode_image
from quaestor.event_layer.redis_pipelines import RedisPipelines
from quaestor.model import AfterImage, GridShape
from quaestor.statistics.counted_reads import read_counted
from quaestor.statistics.deduplication import SeenWrites
from quaestor.statistics.pipelines import Carries, Pipeline, of_grids, of_tenants, ordered, shapes
from quaestor.statistics.positions import Position, Positions
from quaestor.statistics.registered_queries import tenant_in

AT_ONCE: Final = 500
MOST_TENANTS: Final = 200
_FEWEST: Final = 100
_FORGET_AFTER_MS: Final = 600_000
"""Silence after which the pipelines of a replaced grid, or of a tenant, are no longer read."""


class _Step(NamedTuple):
    """Entry, reduced for planning."""

    at_ms: int
    offset: str
    number: int | None
    image: AfterImage | None
    tenant: str | None


class _Scan(NamedTuple):
    steps: list[_Step]
    exhausted: bool
    fresh: Position
    """Position to continue from if there are no steps."""


class Planner:
    """Planner of batches for one kind of reader. Reads each entry once, keeps none."""

    def __init__(
        self,
        layer: RedisPipelines,
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
        """Return the positions to read up to. Raises EventLayerError. O(entries)."""
        known = ordered((*start.shapes, *shapes(self._layer, self._deployment)))
        grids = of_grids(self._deployment, known, self._wanted)
        if not grids:
            return start
        count = len(grids) + len(of_tenants(self._deployment, start.tenants, self._wanted))
        each, each_bytes = max(most_entries // count, _FEWEST), max(self._most_bytes // count, 1)
        scans = {
            pipeline.stream: self._scan(pipeline, start.of(pipeline.stream), each, each_bytes) for pipeline in grids
        }
        tenants = self._tenants(start, scans.values())
        of_known_tenants = of_tenants(self._deployment, tenants, self._wanted)
        scans |= {
            pipeline.stream: self._scan(pipeline, start.of(pipeline.stream), each, each_bytes)
            for pipeline in of_known_tenants
        }
        pipelines = [*grids, *of_known_tenants]
        behind = [scan.steps[-1].at_ms for scan in scans.values() if not scan.exhausted and scan.steps]
        until_ms = min(behind, default=None)
        reached = {
            pipeline.stream: _reached(pipeline, start.of(pipeline.stream), scans[pipeline.stream], until_ms)
            for pipeline in pipelines
        }
        return self._without_the_silent(Positions(shapes=known, tenants=tenants, streams=reached), start, pipelines)

    def _tenants(self, start: Positions, scans: Iterable[_Scan]) -> tuple[str, ...]:
        """Return the known tenants with new ones that have registered. Bounded: tenants without notifications give way."""
        named = {step.tenant for scan in scans for step in scan.steps if step.tenant is not None}
        fresh = sorted(named - {self._deployment, *start.tenants})
        if len(start.tenants) + len(fresh) <= MOST_TENANTS:
            return (*start.tenants, *fresh)
        read = {
            pipeline.tenant: start.of(pipeline.stream)
            for pipeline in of_tenants(self._deployment, start.tenants, self._wanted)
        }
        begun = [name for name in start.tenants if name in read and read[name].offset != offsets.START]
        idle = [name for name in start.tenants if name not in begun]
        return (*begun, *fresh, *idle)[:MOST_TENANTS]

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
            chunk = read_counted(self._layer, pipeline.stream, after, count=wanted)
            if chunk.broken:
                count = chunk.before if count is None or chunk.before is None else max(count, chunk.before)
            for entry in chunk.entries:
                count = None if count is None else count + 1
                size += len(entry.payload)
                image = _image(entry.payload) if pipeline.carries is Carries.WRITES else None
                tenant = tenant_in(entry.payload) if pipeline.carries is Carries.READS else None
                steps.append(_Step(offsets.appended_at_ms(entry.offset), entry.offset, count, image, tenant))
                after = entry.offset
            if len(chunk.entries) < wanted:
                return _Scan(steps, True, start)

    def _without_the_silent(self, reached: Positions, start: Positions, pipelines: Sequence[Pipeline]) -> Positions:
        current = set(shapes(self._layer, self._deployment))
        by_owner: dict[GridShape | str, list[str]] = {}
        for pipeline in pipelines:
            owner = pipeline.tenant if pipeline.shape is None else pipeline.shape
            if owner is not None and owner != self._deployment and owner not in current:
                by_owner.setdefault(owner, []).append(pipeline.stream)
        silent = {
            owner: own for owner, own in by_owner.items() if all(self._silent(stream, start, reached) for stream in own)
        }
        gone = {stream for own in silent.values() for stream in own}
        return Positions(
            shapes=tuple(shape for shape in reached.shapes if shape not in silent),
            tenants=tuple(tenant for tenant in reached.tenants if tenant not in silent),
            streams={stream: position for stream, position in reached.streams.items() if stream not in gone},
        )

    def _silent(self, stream: str, start: Positions, reached: Positions) -> bool:
        position = reached.of(stream)
        if position != start.of(stream) or position.offset == offsets.START:
            return False
        return self._clock() - offsets.appended_at_ms(position.offset) > _FORGET_AFTER_MS


def _reached(pipeline: Pipeline, start: Position, scan: _Scan, until_ms: int | None) -> Position:
    taken = [step for step in scan.steps if until_ms is None or step.at_ms <= until_ms]
    if not taken:
        return scan.fresh
    last = taken[-1]
    if pipeline.carries is not Carries.WRITES:
        return Position(offset=last.offset, count=last.number)
    seen = SeenWrites(start)
    for step in taken:
        if step.image is not None:
            seen.repeated(step.image)
    return seen.at(last.offset, last.number)


def _image(payload: bytes) -> AfterImage | None:
    try:
        return decode_image(payload)
    except EventLayerError:
        return None  # the reader of the entry reports it
