"""Collection events of app processes: a view was redefined, indexes changed, or a collection was invalidated manually."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from quaestor.clock import Clock
from quaestor.event_layer import codec, streams
from quaestor.model import AfterImage, GridShape, WriteKind
from quaestor.ports import EventLayer

_REMEMBERED_MS: Final = 300_000
"""Time for which sent events are kept: longer than two grids of a deployment run side by side."""
_MOST_REMEMBERED: Final = 10_000


class CollectionEvents:
    """Sender of collection events to all write partitions.

    shape: shape of the grid in use; None before the first one is known, when nothing can be registered yet.
    """

    def __init__(
        self, layer: EventLayer, *, deployment: str, shape: Callable[[], GridShape | None], clock: Clock
    ) -> None:
        self._layer = layer
        self._deployment = deployment
        self._shape = shape
        self._clock = clock
        self._sent: dict[bytes, int] = {}

    def send(self, namespaces: Iterable[str]) -> None:
        """Report that all data in these namespaces may have changed. Raises EventLayerError."""
        self._send(
            AfterImage(namespace=namespace, kind=WriteKind.COLLECTION, version=0) for namespace in sorted(namespaces)
        )

    def send_indexes(self, namespace: str, keys: Iterable[Sequence[str]], first_fields: Iterable[str]) -> None:
        """Report the index keys that a collection has now. Raises EventLayerError.

        first_fields: first fields of the indexes that came or went, if no change event reports them.
        """
        event = AfterImage(
            namespace=namespace,
            kind=WriteKind.COLLECTION,
            version=0,
            after={"index_keys": list(map(list, keys))},
            changed=tuple(sorted(first_fields)),
        )
        self._send([event])

    def _send(self, images: Iterable[AfterImage]) -> None:
        now_ms = self._clock()
        payloads = list(map(codec.encode_image, images))
        for payload in payloads:
            self._sent.pop(payload, None)
            self._sent[payload] = now_ms
        while self._sent and (len(self._sent) > _MOST_REMEMBERED or self._oldest_ms() < now_ms - _REMEMBERED_MS):
            del self._sent[next(iter(self._sent))]
        self._append(payloads, self._shape())

    def send_again(self, shape: GridShape) -> None:
        """Repeat recent events for another generation of the grid, which may have missed them. Raises EventLayerError."""
        since_ms = self._clock() - _REMEMBERED_MS
        self._append([payload for payload, sent_ms in list(self._sent.items()) if sent_ms >= since_ms], shape)

    def _oldest_ms(self) -> int:
        return next(iter(self._sent.values()))

    def _append(self, payloads: list[bytes], shape: GridShape | None) -> None:
        if shape is None:
            return
        for partition in range(shape.write_partitions):
            self._layer.append(streams.writes(self._deployment, partition, shape.generation), payloads)
