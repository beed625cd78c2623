"""One snapshot of the Cache Sketch on its way out: its bytes, its compressed bytes where they are fewer, and its entity tags."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from quaestor.cache_sketch.sizing import HEADER_BYTES
from quaestor.first_use import FirstUse
from quaestor.read_path.validation import strong_etag

if TYPE_CHECKING:
    import zstandard
else:
    zstandard = FirstUse("zstandard")

_CODINGS = (b"zstd", b"gzip")
"""In order of preference."""
_WORTH_IT = 0.95
"""Largest compressed share that is sent. Full filters are nearly random, and a body that hardly shrinks is sent uncompressed."""
_ACCEPTED = re.compile(rb"(zstd|gzip)(?:[ \t]*;[ \t]*q=([01](?:\.[0-9]{0,3})?))?", re.IGNORECASE)
_LONGEST_FIELD = 1_024


class SketchSnapshot:
    """A snapshot, with everything computed from it once.

    body: in the format of docs/sketch_format.md.
    made_at_ms: every report before this time is included.
    off: clients must leave all requests to the network.
    """

    def __init__(self, body: bytes, made_at_ms: int, *, off: bool) -> None:
        self.body = body
        self.made_at_ms = made_at_ms
        self.off = off
        self._etag = strong_etag(body)
        self._coded: dict[bytes, bytes | None] = {}
        self._deltas: dict[bytes, dict[bytes, bytes]] = {}

    def again(self, made_at_ms: int, *, off: bool) -> SketchSnapshot:
        """Return the snapshot of a later moment with the same body. O(1)."""
        later = object.__new__(SketchSnapshot)
        later.body, later.made_at_ms, later.off = self.body, made_at_ms, off
        later._etag, later._coded, later._deltas = self._etag, self._coded, self._deltas
        return later

    @property
    def version(self) -> bytes:
        """The name of these bits, by which clients name the sketch that they hold: the entity tag without its quotes."""
        return self._etag[1:-1]

    def delta(self, base: bytes, accepted: frozenset[bytes]) -> tuple[bytes, bytes] | None:
        """Return coding and bytes of the difference from an earlier body: this body's header, and the exclusive or of the bits.

        None if it is no smaller than the whole, or the earlier body has another geometry. O(size of the filter), once a base.
        """
        if len(base) != len(self.body) or base[8:24] != self.body[8:24]:
            return None
        if base not in self._deltas:
            self._deltas[base] = {b"": self.difference(base)}
        coded = self._deltas[base]
        for coding in _CODINGS:
            if coding in accepted:
                if coding not in coded:
                    coded[coding] = _packed(coded[b""], coding)
                return (coding, coded[coding]) if len(coded[coding]) < len(self.coded(accepted)[1]) else None
        return None

    def difference(self, base: bytes) -> bytes:
        """Return the difference between an earlier body of the same geometry and this one; see docs/sketch_format.md."""
        older, newer = (int.from_bytes(body[HEADER_BYTES:], "little") for body in (base, self.body))
        return self.body[:HEADER_BYTES] + (older ^ newer).to_bytes(len(base) - HEADER_BYTES, "little")

    def etag(self, coding: bytes) -> bytes:
        """Return the strong entity tag of the body in this coding; empty: uncompressed. Equal bits always have equal tags."""
        return b'%s-%s"' % (self._etag[:-1], coding) if coding else self._etag

    def coded(self, accepted: frozenset[bytes]) -> tuple[bytes, bytes]:
        """Return the coding to send, empty for none, and the body in it. Each is made once. O(size of the filter)."""
        for coding in _CODINGS:
            if coding in accepted:
                if coding not in self._coded:
                    packed = _packed(self.body, coding)
                    self._coded[coding] = packed if len(packed) <= _WORTH_IT * len(self.body) else None
                if (body := self._coded[coding]) is not None:
                    return coding, body
        return b"", self.body


def acceptable(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Return the codings that a client names and does not forbid. A malformed or very long field names none."""
    text = b",".join(value for name, value in headers if name == b"accept-encoding")
    if len(text) > _LONGEST_FIELD:
        return frozenset()
    matches = (_ACCEPTED.fullmatch(piece.strip()) for piece in text.split(b","))
    return frozenset(match[1].lower() for match in matches if match is not None and float(match[2] or 1) > 0)


def _packed(body: bytes, coding: bytes) -> bytes:
    if coding == b"zstd":
        return zstandard.ZstdCompressor(level=3).compress(body)
    return gzip.compress(body, compresslevel=6, mtime=0)
