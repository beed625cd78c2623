"""Recent writes, kept for replay at registration and for the recognition of stale images.

`floor` is the version above which no event is missing. A registration whose `since` lies below the floor cannot be replayed.
The floor is unknown (None) until the first event, rises when images are trimmed, and jumps over gaps. Events of a write
partition arrive in the order of their versions, except for redeliveries after a restart. Redeliveries are recognised by
record and version.

Writes to a namespace without queries are kept unread, as their payloads (`Unread`). All unread writes of a namespace are read, in
order, before anything else of the namespace is kept, returned or forgotten. Most of them are dropped unread.
Source: InvaliDB, PVLDB 2020, section 5.1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

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


class Unread:
    """Retained write in the form of its payload.

    retained: the same write once it is read; None: not read yet, or a duplicate. The other attributes are those of `Retained`.
    """

    __slots__ = ("arrived_ms", "highest", "namespace", "number", "payload", "retained", "size", "version")

    def __init__(
        self, namespace: str, version: Version, payload: bytes, arrived_ms: int, highest: Version, number: int
    ) -> None:
        self.namespace = namespace
        self.version = version
        self.payload = payload
        self.arrived_ms = arrived_ms
        self.highest = highest
        self.number = number
        self.size = _OVERHEAD + _DECODED * len(payload)
        self.retained: Retained | None = None


class UnreadReader(Protocol):
    """Reader of unread writes."""

    def read(self, unread: Unread) -> tuple[AfterImage, Record, int]:
        """Return the image of an unread write, its record, and the record's hash."""

    def was_read(self, entry: Retained) -> None:
        """Note a write that was read and is no duplicate."""


class Retention:
    """Recent events of one write partition, bounded by age, by number and by bytes. Not thread-safe.

    retention_ms: time for which events are kept.
    reader: reader of unread writes; None: all writes are kept read.
    max_images, max_bytes: largest number and total size of the events.
    bytes: estimated memory of the events.
    floor: version above which no event is missing; None: not known yet.
    """

    def __init__(
        self, *, retention_ms: int, max_images: int, max_bytes: int = _UNBOUNDED, reader: UnreadReader | None = None
    ) -> None:
        self.retention_ms = retention_ms
        self._reader = reader
        self.max_images = max_images
        self.max_bytes = max_bytes
        self.bytes = 0
        self.floor: Version | None = None
        self._entries: deque[Retained | Unread] = deque()
        self._by_namespace: dict[str, deque[Retained]] = {}
        self._unread: dict[str, deque[Unread]] = {}
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
        if self._unread and record is not None and record.namespace in self._unread:
            self._read(record.namespace)
        entry = self._admitted(image, record, identity, now_ms, _OVERHEAD + _DECODED * encoded)
        if entry is None:
            return None
        self._entries.append(entry)
        self._keep_bounds(entry.size, now_ms)
        return entry

    def keep_unread(self, namespace: str, version: Version, payload: bytes, *, now_ms: int) -> None:
        """Keep a write to one record of this namespace without reading it. O(1)."""
        if self.floor is None:
            self.floor = version
        if version > self._highest:
            self._highest = version
        entry = Unread(namespace, version, payload, now_ms, self._highest, self._arrived)
        self._arrived += 1
        self._entries.append(entry)
        events = self._unread.get(namespace)
        if events is None:
            events = self._unread[namespace] = deque()
        events.append(entry)
        self._keep_bounds(entry.size, now_ms)

    def _read(self, namespace: str) -> None:
        """Read all unread writes of a namespace. O(those writes)."""
        assert self._reader is not None
        for unread in self._unread.pop(namespace):
            image, record, identity = self._reader.read(unread)
            unread.payload = b""
            entry = unread.retained = self._admitted(
                image, record, identity, unread.arrived_ms, unread.size, number=unread.number, highest=unread.highest
            )
            if entry is not None:
                self._reader.was_read(entry)

    def _admitted(
        self,
        image: AfterImage,
        record: Record | None,
        identity: int,
        now_ms: int,
        size: int,
        *,
        number: int = -1,
        highest: Version = 0,
    ) -> Retained | None:
        """Return the event as the newest of its namespace; None if it is stale or a duplicate.

        number, highest: of an event that arrived before; -1: the event arrives now.
        """
        known = None if record is None else self._newest.get(record)
        if known is not None:
            if image.version < known.version:
                return None
            if image.version == known.version and _same_content(image, known.raw):
                return None
        elif image.kind is WriteKind.INSERT and not image.before_known:
            image = replace(image, before=None, before_known=True)
        if number < 0:
            self.reached(image.version)
            highest = self._highest = max(self._highest, image.version)
            number, self._arrived = self._arrived, self._arrived + 1
        entry = Retained(
            image,
            record,
            identity,
            previous=None if known is None or image.before_known else known.raw,
            arrived_ms=now_ms,
            highest=highest,
            size=size,
            number=number,
        )
        name = _EVENTS if record is None else record.namespace
        events = self._by_namespace.get(name)
        if events is None:
            events = self._by_namespace[name] = deque()
        events.append(entry)
        if record is not None:
            self._newest[record] = entry
        return entry

    def _keep_bounds(self, size: int, now_ms: int) -> None:
        """Count a new event of this size, and drop the oldest ones that exceed the bounds."""
        self.bytes += size
        while len(self._entries) > self.max_images or (self.bytes > self.max_bytes and len(self._entries) > 1):
            self._drop_oldest()
        oldest_ms = now_ms - self.retention_ms
        for _ in range(_OLD_AT_ONCE):  # a whole second's events at once would delay writes, at thousands a second
            if not self._entries or self._entries[0].arrived_ms >= oldest_ms:
                break
            self._drop_oldest()

    def newer_than(self, since: Version, namespaces: Sequence[str]) -> list[Retained]:
        """Return the retained writes to these namespaces, and collection events, with a version above `since`, oldest first.

        O(returned events): writes to other namespaces cost nothing.
        """
        newer: list[Retained] = []
        searched = 0
        for name in namespaces:
            if name in self._unread:
                self._read(name)
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
        self._unread.clear()
        self.bytes = 0
        self._highest = version
        self.floor = version or None

    def forget_records(self, concerned: Callable[[str], bool]) -> None:
        """Forget the newest images of these namespaces' records: they no longer show the state before the next write."""
        for namespace in list(filter(concerned, self._unread)):
            self._read(namespace)
        for record in [record for record in self._newest if concerned(record.namespace)]:
            del self._newest[record]

    def _drop_oldest(self) -> None:
        oldest = self._entries.popleft()
        self.bytes -= oldest.size
        self.floor = max(self.floor or 0, oldest.version)
        entry = self._dropped_unread(oldest) if isinstance(oldest, Unread) else oldest
        if entry is None:
            return
        name = _EVENTS if entry.record is None else entry.record.namespace
        events = self._by_namespace[name]
        events.popleft()  # the oldest event is also the oldest of its namespace
        if not events:
            del self._by_namespace[name]
        if entry.record is not None and self._newest.get(entry.record) is entry:
            del self._newest[entry.record]

    def _dropped_unread(self, oldest: Unread) -> Retained | None:
        """Drop the oldest event, kept unread when it arrived; return what it was read as, if it was read and is no duplicate."""
        events = self._unread.get(oldest.namespace)
        if events is not None and events[0] is oldest:
            events.popleft()
            if not events:
                del self._unread[oldest.namespace]
        return oldest.retained


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
