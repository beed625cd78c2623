"""Source of the records of updates: the collection's post-images, or a look-up by the server or by ingest.

An update's event names the fields that changed. Matching needs the whole record. Collections that record pre- and post-images put
the image of the very write into the event. Others, MongoDB's default, need a look-up.

**One by one, by the server.** The server can look each record up while it produces the event (`updateLookup`), in 150 us.
That saves a `find` for each read of the stream: a third of ingest's time for a write, and as much of the delay.

**Together, by ingest.** A `find` for all records of a read costs 60 us for each of a thousand. A server that looks up a thousand
records first also holds back the first of their events. While reads return many events, ingest therefore looks up.

`updateLookup` hides post-images. The first event with a pre-image shows that a collection records images. That event is then read
again with its images, and from then on the server looks nothing up.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, Final

from bson.raw_bson import RawBSONDocument

LOOKED_UP_AT_ONCE: Final = 20
"""Largest number of events in a read while the server looks up. A full read shows that ingest would do so at less cost."""
_STAYS_S: Final = 2.0
"""Seconds without so large a read after which the server looks up again. Each change opens the stream anew, in a few ms."""
_PRE_IMAGE: Final = b"\x03fullDocumentBeforeChange\0"


class RecordSource(Enum):
    """Records in the updates of a change stream."""

    IMAGES = auto()
    """Image of the very write, where the collection records images; else none."""
    LOOKED_UP = auto()
    """Record at some moment after the write."""
    NONE = auto()
    """No record, because an event with it would be too large."""
    LOOKED_UP_BEFORE_6_0 = auto()
    """Record at some moment after the write, from a server that knows no images."""

    @classmethod
    def without_look_up(cls, *, images: bool) -> RecordSource:
        """Return the records of a stream whose server looks nothing up, if there is a choice.

        images: the server records images (6.0 and later).
        """
        return cls.IMAGES if images else cls.LOOKED_UP_BEFORE_6_0

    @property
    def stage(self) -> dict[str, Any]:
        """Options of the stage `$changeStream`."""
        match self:
            case RecordSource.LOOKED_UP_BEFORE_6_0:
                return {"fullDocument": "updateLookup"}
            case RecordSource.NONE:
                return {"showExpandedEvents": True}
        looked_up = self is RecordSource.LOOKED_UP
        return {
            "showExpandedEvents": True,
            "fullDocument": "updateLookup" if looked_up else "whenAvailable",
            "fullDocumentBeforeChange": "whenAvailable",
        }

    def at_most(self, at_once: int) -> int:
        """Return the largest number of events to ask for at a time, where `at_once` would do."""
        return min(at_once, LOOKED_UP_AT_ONCE) if self is RecordSource.LOOKED_UP else at_once

    @property
    def looked_up(self) -> bool:
        """Whether the record in an update is one that the server has looked up."""
        return self in (RecordSource.LOOKED_UP, RecordSource.LOOKED_UP_BEFORE_6_0)


class RecordSourceChoice:
    """Choice of one follower. Not thread-safe."""

    def __init__(self) -> None:
        self._images_seen = False
        self._many_until_s = 0.0

    def choose(self, now_s: float, *, images: bool, slim: bool = False) -> RecordSource:
        """Return the records to ask for.

        now_s: of a monotonic clock.
        images: the server records images (6.0 and later).
        slim: the next event is too large with its record. Others may follow.
        """
        if slim and images:
            self._many_until_s = now_s + _STAYS_S
            return RecordSource.NONE
        together = self._images_seen or now_s < self._many_until_s
        return RecordSource.without_look_up(images=images) if together or not images else RecordSource.LOOKED_UP

    def note(self, events: Sequence[RawBSONDocument], now_s: float) -> None:
        """Note the size of a read."""
        if len(events) >= LOOKED_UP_AT_ONCE:
            self._many_until_s = now_s + _STAYS_S

    def hidden_image(self, events: Sequence[RawBSONDocument]) -> bool:
        """Whether one of these events, read with LOOKED_UP, has a pre-image; then its post-image was not sent.

        O(bytes). A record that contains the name of the field counts too, and costs only a look-up by ingest from then on.
        """
        self._images_seen = self._images_seen or any(_PRE_IMAGE in bytes(event.raw) for event in events)
        return self._images_seen
