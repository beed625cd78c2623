"""Answers kept in a client's memory, within a number of bytes; the least recently used leave first. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from quaestor.client.fields import Lifetime
from quaestor.errors import ConfigurationError

CREDENTIALS = ("authorization", "cookie")
"""Fields that identify the user of a private answer: all of them, besides the names in `Vary`."""
OF_EVERYBODY = frozenset(
    {
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "connection",
        "host",
        "origin",
        "referer",
        "user-agent",
    }
)
"""Request fields that do not identify a user."""
MEMORY_BYTES = 100_000_000
"""Default size of the memory."""
OVERHEAD_BYTES = 1_000
"""Counted for an answer besides its body and its header fields."""
LARGEST = 4
"""An answer takes at most one part in this many of the memory."""
REMEMBERED = 10_000
"""URLs with a remembered form, and variants with a remembered newest version, at most."""

_CONNECTION = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)

Identity = tuple[bytes, tuple[tuple[str, str | None], ...]]
"""One variant of one URL: the target as it is sent, and the deciding request fields with their values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A kept answer.

    identity: the variant that it answers.
    name: digest of its resource, its name in sketches.
    life: its lifetime.
    etag: its validator.
    headers: its fields as they came, without fields of the connection.
    body: its bytes as they came, encoded if they were.
    checked_ms: every write before then is included, whenever the answer left the server; 0 if unknown.
    """

    identity: Identity
    name: bytes
    life: Lifetime
    etag: str
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    checked_ms: int = 0

    @property
    def shows_ms(self) -> int:
        """Every write before this time is included."""
        return max(self.life.at_ms, self.checked_ms)

    @property
    def size_bytes(self) -> int:
        """Bytes that the copy counts for."""
        fields = sum(len(name) + len(value) for name, value in self.headers)
        return OVERHEAD_BYTES + len(self.identity[0]) + fields + len(self.body)


@dataclass(frozen=True, slots=True)
class Form:
    """Form of the last answer of a URL.

    decided_by: request fields that chose it.
    sketch: partition of the sketch that covers it.
    """

    decided_by: tuple[str, ...]
    sketch: str


Raw = Sequence[tuple[bytes, bytes]]
"""Header fields as they came."""


def end_to_end(raw: Raw) -> tuple[tuple[bytes, bytes], ...]:
    """Return the fields of an answer without those of its connection."""
    return tuple((name, value) for name, value in raw if name.lower() not in _CONNECTION)


def confirmed(copy: Copy, life: Lifetime, raw: Raw, checked_ms: int = 0) -> Copy:
    """Return a copy whose fields are replaced by the fields of a 304 (RFC 9111, section 3.2)."""
    new = [(n, v) for n, v in end_to_end(raw) if n.lower() not in (b"content-length", b"content-encoding")]
    names = {name.lower() for name, _ in new}
    kept = ((name, value) for name, value in copy.headers if name.lower() not in names)
    return replace(copy, life=life, checked_ms=checked_ms, headers=(*kept, *new))


def identity(target: bytes, request_fields: Mapping[str, str], decided_by: tuple[str, ...]) -> Identity:
    """Return the variant that an answer to this request belongs to."""
    return target, tuple((name, request_fields.get(name)) for name in decided_by)


def anonymous(key: Identity) -> bool:
    """Whether a request for this variant carried nothing that identifies its user."""
    return all(value is None or name in OF_EVERYBODY for name, value in key[1])


class Copies:
    """Copies of one client. Raises ConfigurationError for a limit that is no number of bytes."""

    def __init__(self, limit_bytes: int) -> None:
        if isinstance(limit_bytes, bool) or not isinstance(limit_bytes, int) or limit_bytes < 0:
            raise ConfigurationError(f"memory_bytes must be a number of bytes, 0 or more; not {limit_bytes!r}")
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self._kept: OrderedDict[Identity, Copy] = OrderedDict()
        self._forms: OrderedDict[bytes, Form] = OrderedDict()
        self._newest: OrderedDict[Identity, tuple[int, str | None]] = OrderedDict()
        self._undated: OrderedDict[bytes | Identity, float] = OrderedDict()
        self._forgotten_ms = 0.0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def largest_bytes(self) -> int:
        """Size of the largest answer that may be kept."""
        return self.limit_bytes // LARGEST

    def form(self, target: bytes) -> Form | None:
        """Return the form of a URL's last answer; None if no answer with a lifetime is remembered."""
        return self._forms.get(target)

    def find(self, target: bytes, request_fields: Mapping[str, str]) -> Copy | None:
        """Return the copy that answers a request, and mark it as used."""
        form = self._forms.get(target)
        if form is None:
            return None
        key = identity(target, request_fields, form.decided_by)
        copy = self._kept.get(key)
        if copy is not None:
            self._kept.move_to_end(key)
        return copy

    def older(self, key: Identity, at_ms: float, etag: str | None) -> bool:
        """Whether a version that left the server at at_ms may be older than the newest that was seen."""
        newest_ms, newest_etag = self._newest.get(key, (self._forgotten_ms, None))
        other = etag is None or etag != newest_etag
        return (at_ms < newest_ms and other) or at_ms < self._undated_ms(key)

    def dated(self, target: bytes, request_fields: Mapping[str, str]) -> bool:
        """Whether the last answer to such a request carried the time when it left the server."""
        form = self._forms.get(target)
        if form is None:
            return False
        key = identity(target, request_fields, form.decided_by)
        return key in self._newest and not self._undated_ms(key)

    def _undated_ms(self, key: Identity) -> float:
        return max(self._undated.get(key[0], 0), self._undated.get(key, 0))

    def saw(self, key: Identity, form: Form, at_ms: int, etag: str | None) -> None:
        """Remember the version of an answer. A copy of another version is dropped.

        at_ms: latest moment that it may have left the server.
        """
        known = self._forms.get(key[0])
        if known is not None and known.decided_by != form.decided_by:
            self._join_undated(key[0])
        _remember(self._forms, key[0], form)
        for name in (key[0], key):
            if at_ms >= self._undated.get(name, at_ms):
                self._undated.pop(name, None)
        forgotten = _remember(self._newest, key, (at_ms, etag))
        if forgotten is not None:
            self._forgotten_ms = max(self._forgotten_ms, forgotten[0])
        kept = self._kept.get(key)
        if kept is not None and (etag is None or kept.etag != etag):
            self.drop(key)

    def saw_undated(self, target: bytes, request_fields: Mapping[str, str], at_ms: float) -> None:
        """Drop the copy of one variant after an answer without a time, which left the server at at_ms at the latest.

        Earlier answers may be older than that one. While the server's time is unknown, at_ms is infinite. Copies of other users
        stay. While the fields that distinguish variants are unknown, the whole URL counts.
        """
        form = self._forms.get(target)
        name = target if form is None else identity(target, request_fields, form.decided_by)
        if not isinstance(name, bytes):
            self.drop(name)
        forgotten = _remember(self._undated, name, at_ms)
        if forgotten is not None:
            self._forgotten_ms = max(self._forgotten_ms, forgotten)

    def date(self, at_ms: float) -> None:
        """Date the answers from before the server's time was known: the latest time that they may have left."""
        for name, known_ms in self._undated.items():
            self._undated[name] = min(known_ms, at_ms)
        self._forgotten_ms = min(self._forgotten_ms, at_ms)

    def keep(self, copy: Copy) -> None:
        """Keep a copy in place of an older one, unless another version was seen since its request."""
        kept, newest = self._kept.get(copy.identity), self._newest.get(copy.identity)
        overtaken = newest is None or newest[1] != copy.etag or copy.life.at_ms < self._undated_ms(copy.identity)
        if copy.size_bytes > self.largest_bytes or overtaken:
            return
        if kept is not None and kept.life.at_ms > copy.life.at_ms:
            # Another cache on the way has confirmed the same version, which had reached it earlier.
            copy = replace(kept, checked_ms=max(kept.checked_ms, copy.checked_ms))
        self.drop(copy.identity)
        self._kept[copy.identity] = copy
        self.bytes += copy.size_bytes
        while self.bytes > self.limit_bytes:
            self.drop(next(iter(self._kept)))

    def _join_undated(self, target: bytes) -> None:
        """Count undated answers of any variant for the whole URL, because its variants are now distinguished by other fields."""
        for key in [key for key in self._undated if not isinstance(key, bytes) and key[0] == target]:
            self._undated[target] = max(self._undated.get(target, 0), self._undated.pop(key))

    def forget_private(self) -> None:
        """Drop all private copies."""
        for key in [key for key, copy in self._kept.items() if copy.life.private]:
            self.drop(key)

    def clear(self) -> None:
        """Drop all copies, and all memory of versions."""
        self._kept.clear()
        self._forms.clear()
        self._newest.clear()
        self._undated.clear()
        self._forgotten_ms = 0
        self.bytes = 0

    def drop(self, key: Identity) -> None:
        """Drop one copy, if it is there."""
        copy = self._kept.pop(key, None)
        if copy is not None:
            self.bytes -= copy.size_bytes


def _remember(known: OrderedDict[Any, Any], key: object, value: object) -> Any:
    """Remember a value as the newest; return the value forgotten for it, or None."""
    known[key] = value
    known.move_to_end(key)
    return known.popitem(last=False)[1] if len(known) > REMEMBERED else None
