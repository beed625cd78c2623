"""Recent writes, kept for replay at registration and for the recognition of stale images.

`floor` is the version above which no event is missing. A registration whose `since` lies below the floor cannot be replayed.
The floor is unknown (None) until the first event, rises when images are trimmed, and jumps over gaps. Events of a write
partition arrive in the order of their versions, except for redeliveries after a restart. Redeliveries are recognised by
record and version.
Source: InvaliDB, PVLDB 2020, section 5.1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final, NamedTuple

from quaestor.model import AfterImage, Version, WriteKind

_UNBOUNDED: Final = 2**63
_EVENTS: Final = "*"
"""Key of the collection events; no namespace has this name."""
_OVERHEAD: Final = 700
"""Bytes of an image besides its document."""
_OLD_AT_ONCE: Final = 3
"""Old events dropped with each new one: more than one, so that the events of a burst go at a lower rate of writes."""
_DECODED: Final = 4
"""Ratio of a document's size as Python objects to its size as BSON."""


class Record(NamedTuple):
    """Identity of a record: its namespace and the bytes of its `_id`."""

    namespace: str
    key: bytes


class Retained:
    """Retained event, as the node received it.

    record: None for collection events.
    identity: hash of the record, or 0.
    highest: highest version among this event and all that arrived before.
    size: estimated memory in bytes.
    number: position in the order of arrival.
    """

    __slots__ = ("_image", "_previous", "arrived_ms", "highest", "identity", "number", "record", "size", "version")

    def __init__(
        self,
        image: AfterImage,
        record: Record | None,
        identity: int,
        *,
        previous: AfterImage | None,
        arrived_ms: int,
        highest: Version,
        size: int,
        number: int,
    ) -> None:
        self._image = image
        self._previous = previous
        self.version = image.version
        self.record = record
        self.identity = identity
        self.arrived_ms = arrived_ms
        self.highest = highest
        self.size = size
        self.number = number

    @property
    def image(self) -> AfterImage:
        """The event, with the image before it filled in if the former write holds it. Documents are decoded only here."""
        if self._previous is not None:
            self._image = _with_before(self._image, self._previous)
            self._previous = None
        return self._image

    @property
    def raw(self) -> AfterImage:
        """The event as received."""
        return self._image


class Retention:
    """Recent events of one write partition, bounded by age, by number and by bytes. Not thread-safe.

    retention_ms: time for which events are kept.
    max_images, max_bytes: largest number and total size of the events.
    bytes: estimated memory of the events.
    floor: version above which no event is missing; None: not known yet.
    """

    def __init__(self, *, retention_ms: int, max_images: int, max_bytes: int = _UNBOUNDED) -> None:
        self.retention_ms = retention_ms
        self.max_images = max_images
        self.max_bytes = max_bytes
        self.bytes = 0
        self.floor: Version | None = None
        self._entries: deque[Retained] = deque()
        self._by_namespace: dict[str, deque[Retained]] = {}
        self._arrived = 0
        self._newest: dict[Record, Retained] = {}
        self._highest: Version = 0

    def __len__(self) -> int:
        return len(self._entries)

    def reached(self, version: Version) -> None:
        """Note that the stream was read up to this version; above the first such version no event is missing."""
        if self.floor is None:
            self.floor = version

    def admit(
        self, image: AfterImage, record: Record | None, identity: int, *, now_ms: int, encoded: int = 0
    ) -> Retained | None:
        """Keep an event; return None if it is stale or a duplicate. O(1).

        An image with the newest known version of its record is a duplicate unless its content differs. A transaction may
        write a record twice under one version.

        record, identity: the written record and its hash; None and 0 for collection events.
        encoded: size of the event in the pipeline, in bytes.
        """
        known = None if record is None else self._newest.get(record)
        if known is not None:
            if image.version < known.version:
                return None
            if image.version == known.version and _same_content(image, known.raw):
                return None
        elif image.kind is WriteKind.INSERT and not image.before_known:
            image = replace(image, before=None, before_known=True)
        self.reached(image.version)
        self._highest = max(self._highest, image.version)
        entry = Retained(
            image,
            record,
            identity,
            previous=None if known is None or image.before_known else known.raw,
            arrived_ms=now_ms,
            highest=self._highest,
            size=_OVERHEAD + _DECODED * encoded,
            number=self._arrived,
        )
        self._arrived += 1
        self._entries.append(entry)
        name = _EVENTS if record is None else record.namespace
        events = self._by_namespace.get(name)
        if events is None:
            events = self._by_namespace[name] = deque()
        events.append(entry)
        self.bytes += entry.size
        if record is not None:
            self._newest[record] = entry
        while len(self._entries) > self.max_images or (self.bytes > self.max_bytes and len(self._entries) > 1):
            self._drop_oldest()
        oldest_ms = now_ms - self.retention_ms
        for _ in range(_OLD_AT_ONCE):  # a whole second's events at once would delay writes, at thousands a second
            if not self._entries or self._entries[0].arrived_ms >= oldest_ms:
                break
            self._drop_oldest()
        return entry

    def newer_than(self, since: Version, namespaces: Sequence[str]) -> list[Retained]:
        """Return the retained writes to these namespaces, and collection events, with a version above `since`, oldest first.

        O(returned events): writes to other namespaces cost nothing.
        """
        newer: list[Retained] = []
        searched = 0
        for name in (*namespaces, _EVENTS):
            events = self._by_namespace.get(name)
            if events is None:
                continue
            searched += 1
            for entry in reversed(events):
                if entry.highest <= since:
                    break
                if entry.version > since:
                    newer.append(entry)
        if searched == 1:
            newer.reverse()
        else:
            newer.sort(key=attrgetter("number"))
        return newer

    def trim(self, *, now_ms: int) -> None:
        """Forget events that arrived more than the retention ago."""
        while self._entries and self._entries[0].arrived_ms < now_ms - self.retention_ms:
            self._drop_oldest()

    def interrupted(self, version: Version) -> None:
        """Forget all events: those before `version` are unknown (0: even the version is unknown until the next event)."""
        self._entries.clear()
        self._newest.clear()
        self._by_namespace.clear()
        self.bytes = 0
        self._highest = version
        self.floor = version or None

    def forget_records(self, concerned: Callable[[str], bool]) -> None:
        """Forget the newest images of these namespaces' records: they no longer show the state before the next write."""
        for record in [record for record in self._newest if concerned(record.namespace)]:
            del self._newest[record]

    def _drop_oldest(self) -> None:
        entry = self._entries.popleft()
        self.bytes -= entry.size
        name = _EVENTS if entry.record is None else entry.record.namespace
        events = self._by_namespace[name]
        events.popleft()  # the oldest event is also the oldest of its namespace
        if not events:
            del self._by_namespace[name]
        self.floor = max(self.floor or 0, entry.version)
        if entry.record is not None and self._newest.get(entry.record) is entry:
            del self._newest[entry.record]


def _same_content(a: AfterImage, b: AfterImage) -> bool:
    return a.kind is b.kind and a.changed == b.changed and a.after == b.after


def _with_before(image: AfterImage, previous: AfterImage) -> AfterImage:
    """Return the image with the state that it replaced, if the former write shows it."""
    if image.before_known:
        return image
    if image.kind is WriteKind.INSERT:
        return replace(image, before=None, before_known=True)
    if previous.kind is WriteKind.DELETE:
        return replace(image, before=None, before_known=True)
    if previous.after_exact and previous.after is not None:
        return replace(image, before=previous.after, before_known=True)
    return image
