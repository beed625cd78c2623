"""Recorded reports of the cells, read beside everything else: the freshness of each over time, and its work."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass

from quaestor.clock import system_clock
from quaestor.errors import EventLayerError, EventLayerResetError
from quaestor.event_layer import streams
from quaestor.event_layer.codec import decode_notification
from quaestor.event_layer.connecting import event_layer
from quaestor.model import Cell, Heartbeat

_KEPT = 20_000


@dataclass(frozen=True, slots=True)
class Beat:
    """number: counted up. The rest as in Heartbeat."""

    number: int
    cell: Cell
    writes: int


class Heartbeats:
    """One thread that reads the notification pipeline on a connection of its own."""

    def __init__(self, redis_url: str, deployment: str) -> None:
        self._redis_url, self._deployment = redis_url, deployment
        self.beats: list[Beat] = []
        self._taken = 0
        self.fresh_as_of_ms: dict[Cell, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(20)

    def _run(self) -> None:
        stream = streams.notifications(self._deployment)
        with closing(event_layer(self._redis_url, self._deployment)) as layer:
            after = "0"
            while not self._stop.is_set():
                try:
                    for entry in layer.read({stream: after}, count=1_000, block_ms=200):
                        after = entry.offset
                        self._take(decode_notification(entry.payload))
                except EventLayerResetError:
                    after = "0"
                except EventLayerError:
                    self._stop.wait(0.1)

    def _take(self, said: object) -> None:
        if not isinstance(said, Heartbeat):
            return
        self.fresh_as_of_ms[said.cell] = max(said.fresh_as_of_ms, self.fresh_as_of_ms.get(said.cell, 0))
        self.beats.append(Beat(self._taken, said.cell, said.writes))
        self._taken += 1
        del self.beats[:-_KEPT]

    def all_fresh(self, since_ms: int, cells: int) -> bool:
        """Whether every cell has proved a moment after this one, and one of the last second and a half."""
        now_ms = system_clock()
        moments = list(self.fresh_as_of_ms.values())
        return len(moments) == cells and min(moments) >= max(since_ms, now_ms - 1_500)

    def lag_ms(self, cell: Cell) -> int:
        """How long ago the moment is that this cell has proved last."""
        return system_clock() - self.fresh_as_of_ms[cell]

    def mark(self) -> int:
        """Now, for `undisturbed`."""
        return self._taken

    def undisturbed(self, since: int) -> set[Cell]:
        """The cells that went on since the mark: heard again, and never with a count of writes that had begun anew."""
        counts: dict[Cell, list[int]] = {}
        for beat in list(self.beats):
            if beat.number >= since:
                counts.setdefault(beat.cell, []).append(beat.writes)
        before = {beat.cell: beat.writes for beat in list(self.beats) if beat.number < since}
        return {cell for cell, counted in counts.items() if (all_ := [before.get(cell, 0), *counted]) == sorted(all_)}
