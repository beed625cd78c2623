"""Maintained lists: results that the grid keeps up to date, so that a list is made anew after a write without a query.

The answer is guarded as always. The read is noted as the query of the result (`capture/maintained_reads.py`). The entry is
therefore registered, tagged, listed in the sketch and invalidated by the next write like any other. The earlier write has
purged the copies outside; new answers fill them again. Only the source of the records differs. A result is used only if it is
known to contain every write that this process knows of, own writes included; that takes some milliseconds. A list is read from
the database if its result takes longer, is not here yet or cannot be maintained.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import bson

from quaestor.capture import current, not_recording
from quaestor.capture.maintained_reads import note_maintained
from quaestor.errors import QuaestorError
from quaestor.event_layer.codec import BSON_OPTIONS
from quaestor.model import Query
from quaestor.realtime.live import LiveResult
from quaestor.realtime.subscriptions import Subscriptions
from quaestor.rest.record_cache import Engine
from quaestor.rest.records import decode

MOST: Final = 64
"""Maintained lists of one router at a time: each costs the grid and this process its records."""
IDLE_MS: Final = 60_000
"""A list that no answer has used for so long is no longer followed."""
REFUSED_MS: Final = 60_000
"""After a refusal to follow a list, the next try comes after so long."""
_WITHIN_S: Final = 0.5
_LOOK_EVERY_S: Final = 0.002


class MaintainingEngine(Engine, Protocol):
    """Parts of a Quaestor that maintained lists need as well."""

    @property
    def subscriptions(self) -> Subscriptions:
        """Its subscriptions."""


@dataclass(slots=True, kw_only=True)
class _Followed:
    """A followed list.

    result: None while it is not here.
    sequence: of the newest change that was seen.
    refused_ms: time of the last refusal to follow it.
    """

    used_ms: int
    task: asyncio.Task[None] | None = None
    result: LiveResult | None = None
    sequence: int = 0
    refused_ms: int | None = None


class Maintained(NamedTuple):
    """A maintained list.

    raws: its records, in order.
    changes: number of changes since it was last used.
    """

    raws: list[bytes]
    changes: int


class MaintainedLists:
    """Maintained lists of one router. Use from one event loop. name: of a list, equal for equal queries."""

    def __init__(self, engine: MaintainingEngine) -> None:
        self.engine = engine
        self._followed: dict[str, _Followed] = {}
        self._errands = engine.read_path.process.supervisor.errands("maintained-lists")

    def __len__(self) -> int:
        return len(self._followed)

    def takes(self, name: str) -> bool:
        """Whether this list is or may be maintained."""
        followed = self._followed.get(name)
        if followed is None:
            return len(self._followed) < MOST
        refused_ms = followed.refused_ms
        return refused_ms is None or self.engine.read_path.clock() - refused_ms >= REFUSED_MS

    async def records(self, name: str, query: Query) -> Maintained | None:
        """Return the list, noted as a read of the current request. None: read the database; if possible the list is followed now.

        query: a find without a projection, in the form for the database.
        """
        followed = self._follow(name, query, self.engine.read_path.clock())
        recorder = current()
        if followed is None or followed.result is None or recorder is None:
            return None
        begun_s = time.perf_counter()
        # The middleware's watermark from before the handler is not newer, and awaited own writes are not newer either.
        wanted = self.engine.registry.watermark()
        while (version := followed.result.proven) < wanted:
            if not version or time.perf_counter() - begun_s > _WITHIN_S:
                return None
            await asyncio.sleep(_LOOK_EVERY_S)
        contents = followed.result.contents()
        if not contents.version or not contents.rows:  # only the database knows whether the collection exists
            return None
        raws = [bson.encode(document, codec_options=BSON_OPTIONS) for _, document in contents.rows]
        took_ms = (time.perf_counter() - begun_s) * 1_000
        note_maintained(recorder, query, list(map(decode, raws)), version=contents.version, duration_ms=took_ms)
        changes, followed.sequence = contents.sequence - followed.sequence, contents.sequence
        return Maintained(raws, max(1, changes))

    def used(self, name: str) -> None:
        """Note that an answer used the list out of the store, so it is worth maintaining."""
        followed = self._followed.get(name)
        if followed is not None:
            followed.used_ms = self.engine.read_path.clock()

    def keep_house(self) -> None:
        """Stop following unused lists, and have the grid report its progress at once. Called once a second."""
        now_ms = self.engine.read_path.clock()
        for name in [name for name, followed in self._followed.items() if now_ms - followed.used_ms > IDLE_MS]:
            self.leave(name)
        if any(followed.result is not None for followed in self._followed.values()):
            self.engine.read_path.own_writes.expect()

    def leave(self, name: str) -> None:
        """Stop following a list."""
        followed = self._followed.pop(name, None)
        if followed is None:
            return
        if followed.task is not None:
            followed.task.cancel()
        if followed.result is not None:
            self._errands.start(followed.result.cancel())

    def _follow(self, name: str, query: Query, now_ms: int) -> _Followed | None:
        followed = self._followed.get(name)
        if followed is not None:
            followed.used_ms = now_ms
            if followed.result is not None and followed.result.failed:
                followed.result, followed.refused_ms = None, now_ms
            if followed.refused_ms is None or now_ms - followed.refused_ms < REFUSED_MS:
                return followed
            self.leave(name)
        if len(self._followed) >= MOST:
            return None
        followed = self._followed[name] = _Followed(used_ms=now_ms)
        with not_recording():
            followed.task = self._errands.start(self._begin(followed, query))
        return followed

    async def _begin(self, followed: _Followed, query: Query) -> None:
        try:
            result = await self.engine.subscriptions.subscribe(query)
            if result.recomputation is None:
                followed.result = result
            else:  # each write would read it again, for readers that may never come
                await result.cancel()
                followed.refused_ms = self.engine.read_path.clock()
        except QuaestorError:  # counted where it is refused; the database answers instead
            followed.refused_ms = self.engine.read_path.clock()
        self.engine.read_path.own_writes.expect()
