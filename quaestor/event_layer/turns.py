"""Turns of a loop that reads pipelines in memory: a step runs in the loop's own thread, or in the thread that has just appended.

Waking a thread costs more than a step. In a busy process the woken thread also waits for the interpreter, up to 5 ms a hop. An
embedded grid would hop from ingest to its cell, and from there to the reader of notifications, for each write.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol

_SOON_S: Final = 0.001
"""A step that is due within this time is due now."""


class Bell:
    """Wait of one reader; a bare lock, because every cache miss pays for each hop between threads."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """End the wait, or the next one."""
        with suppress(RuntimeError):  # it rang already
            self._lock.release()

    def wait(self, timeout_s: float) -> bool:
        """Wait. Returns whether it rang."""
        return self._lock.acquire(timeout=timeout_s)


class Turns:
    """Turns of one loop, one at a time.

    step: works off what is there, without a wait. Returns after how many seconds the next step is due; 0: at once.
    bell: wakes the loop's own thread.
    """

    def __init__(self, step: Callable[[], float]) -> None:
        self.bell = Bell()
        self._step = step
        self._lock = threading.Lock()
        self._open = False
        self._failed: Exception | None = None
        self._due_s = 0.0

    def of_its_own(self) -> float:
        """Take a turn in the loop's own thread, and let other threads take turns from then on. Returns as `step` does. Raises
        what the step has raised, also a step in another thread; then no other thread takes a turn before the next one here."""
        with self._lock:
            self._open = False
            failed, self._failed = self._failed, None
            if failed is not None:
                raise failed
            pause_s = self._step()
            self._due_s = time.monotonic() + pause_s
            self._open = True
            return pause_s

    def left_s(self) -> float:
        """Seconds until the next step is due; not positive: now. Steps of other threads may have put it off."""
        left_s = self._due_s - time.monotonic()
        return left_s if left_s > _SOON_S else 0.0

    def of_appender(self, append: Callable[[], None]) -> bool | None:
        """Append, and take a turn in this thread. Returns whether the loop's own thread has to go on at once. None: the loop is
        at work or not ready, and nothing was appended."""
        if not self._open or not self._lock.acquire(blocking=False):
            return None
        try:
            if not self._open:
                return None
            append()
            try:
                pause_s = self._step()
            except Exception as error:  # of the loop, not of this thread
                self._failed, self._open = error, False
                return True
            planned_s, self._due_s = self._due_s, time.monotonic() + pause_s
            return self._due_s < planned_s - _SOON_S
        finally:
            self._lock.release()

    def close(self) -> None:
        """Let no other thread take a turn any more."""
        with self._lock:
            self._open = False


class PipelinesInMemory(Protocol):
    """Part of MemoryEventLayer that turn-taking needs."""

    def append(self, stream: str, payloads: Sequence[bytes], *, but: Turns | None = None) -> None:
        """Append. but: is not woken."""

    def wait(self, bell: Bell, offsets: Mapping[str, str], *, block_ms: float) -> bool:
        """Wait until there are entries behind these offsets, or until the bell rings. Returns whether either is so."""

    @property
    def turns(self) -> TurnTaking:
        """Loops that take turns."""


class TurnTaking:
    """Loops that take turns on one layer in memory, by the pipelines that they read."""

    def __init__(self, layer: PipelinesInMemory) -> None:
        self._layer = layer
        self._loops: dict[str, Turns] = {}

    def append(self, stream: str, payloads: Sequence[bytes]) -> None:
        """Append to a pipeline, and take a turn of the loop that reads it. See EventLayer.append()."""
        turns = self._loops.get(stream)
        if turns is not None and payloads:
            goes_on = turns.of_appender(lambda: self._layer.append(stream, payloads, but=turns))
            if goes_on is not None:
                if goes_on:
                    turns.bell.ring()
                return
        self._layer.append(stream, payloads)

    def run(
        self, stop: threading.Event, turns: Turns, streams: Iterable[str], behind: Callable[[], Mapping[str, str]]
    ) -> None:
        """Run a loop until stop is set. Raises what its steps raise.

        streams: pipelines whose appenders may take its turns.
        behind: offsets behind which entries wait for the next step.
        """
        with self._taken(turns, streams):
            while not stop.is_set():
                pause_s = turns.of_its_own()
                while pause_s > 0 and not stop.is_set():
                    arrived = self._layer.wait(turns.bell, behind(), block_ms=pause_s * 1_000)
                    pause_s = 0.0 if arrived else turns.left_s()

    def wake(self, stream: str) -> None:
        """Wake the loop that reads a pipeline, so that it sees that it is to stop."""
        if (turns := self._loops.get(stream)) is not None:
            turns.bell.ring()

    @contextmanager
    def _taken(self, turns: Turns, streams: Iterable[str]) -> Iterator[None]:
        names = tuple(streams)
        self._loops.update(dict.fromkeys(names, turns))
        try:
            yield
        finally:
            for name in names:
                if self._loops.get(name) is turns:
                    del self._loops[name]
            turns.close()


class TurnTakingLayer:
    """Event layer in memory, for a thread that takes turns of other loops after it has appended. See ports.EventLayer."""

    def __init__(self, layer: PipelinesInMemory) -> None:
        self._layer = layer
        self.append = layer.turns.append

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


def turns_on(layer: object) -> TurnTaking | None:
    """Return the turn-taking of a layer in memory; None for other layers."""
    turns = getattr(layer, "turns", None)
    return turns if isinstance(turns, TurnTaking) else None
