"""Event layer for a process that writes only while its lease lasts.

A process that stood still for longer than its lease continues as if nothing had happened. Its next write is refused here,
without a request to the server, because another process may hold the lease by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from quaestor.errors import EventLayerError
from quaestor.event_layer.redis import RedisEventLayer
from quaestor.event_layer.redis_pipelines import RedisPipelines
from quaestor.ports import PipelineSize, StreamEntry


class FencedLayer:
    """Event layer that always passes on reads, and writes only while `held` returns True. See ports.EventLayer.

    A refused write raises EventLayerError. A write passed on just before the end of the lease may still arrive.
    """

    immediate = False

    def __init__(self, layer: RedisPipelines, held: Callable[[], bool]) -> None:
        """Make the layer.

        layer: the fenced layer; closed along with it.
        held: whether the lease lasts. Called before each write, in the writer's thread.
        """
        self._layer = layer
        self._held = held

    def append(self, stream: str, payloads: Sequence[bytes]) -> None:
        self._require(stream)
        self._layer.append(stream, payloads)

    def read(self, offsets: Mapping[str, str], *, count: int, block_ms: int) -> list[StreamEntry]:
        return self._layer.read(offsets, count=count, block_ms=block_ms)

    def offset_at(self, stream: str, at_ms: int) -> str:
        return self._layer.offset_at(stream, at_ms)

    def first_offset(self, stream: str) -> str | None:
        return self._layer.first_offset(stream)

    def trim(self, stream: str, *, before_ms: int) -> None:
        self._require(stream)
        self._layer.trim(stream, before_ms=before_ms)

    def measure(self, stream: str) -> PipelineSize:
        return self._layer.measure(stream)

    def trim_and_measure(self, before_ms: Mapping[str, int | None]) -> dict[str, PipelineSize]:
        self._require(next(iter(before_ms), ""))
        return self._layer.trim_and_measure(before_ms)

    def put(self, name: str, value: bytes) -> None:
        self._require(name)
        self._layer.put(name, value)

    def get(self, name: str) -> bytes | None:
        return self._layer.get(name)

    def close(self) -> None:
        self._layer.close()

    def reopen(self) -> None:
        self._layer.reopen()

    def _require(self, name: str) -> None:
        if not self._held():
            raise EventLayerError(f"{name} is not written: the lease of this process is over, another process may lead")


class FencedServer(FencedLayer):
    """The same for a layer on one server, whose appends return values along. See ports.ReadingAppends."""

    _layer: RedisEventLayer

    def append_and_get(self, stream: str, payloads: Sequence[bytes], name: str) -> bytes | None:
        self._require(stream)
        return self._layer.append_and_get(stream, payloads, name)


def fenced(layer: RedisPipelines, held: Callable[[], bool]) -> FencedLayer:
    """Return a layer that writes only while `held` returns True; see FencedLayer."""
    return FencedServer(layer, held) if isinstance(layer, RedisEventLayer) else FencedLayer(layer, held)
