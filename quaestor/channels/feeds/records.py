"""Records of feeds: bytes of a source become JSON objects, or a reason why not. Memory is bounded by the longest record."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from quaestor.errors import ConfigurationError, DependencyError, QueryError

LONGEST: Final = 1 << 20
"""Bytes of a record."""
_MOST_EXPANDED: Final = 100
"""Bytes that a byte of a compressed body may become, beyond the first megabyte."""
_PART: Final = 1 << 16
_MARKS: Final = re.compile(rb'["\\{}\[\]]')


class FeedError(QueryError):
    """Error of a message from a source: it is refused as a whole."""


class SourceLostError(DependencyError):
    """Loss of a source: records after the offset of a feed are gone, or can no longer be read."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=False)


@dataclass(frozen=True, slots=True)
class Incoming:
    """Record as its source sent it.

    offset: of the source after this record; empty: the source has none.
    """

    data: bytes
    offset: str = ""


def from_beginning(start: str) -> bool:
    """Return whether a feed that has written nothing begins with the oldest record, by its option `from`.

    Raises ConfigurationError unless the option is `beginning` or `now`.
    """
    if start not in ("now", "beginning"):
        raise ConfigurationError(f"from is {start!r}: write now or beginning")
    return start == "beginning"


class Lines:
    """Splits bytes into lines. Empty lines are left out."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._rest = bytearray()

    def feed(self, part: bytes) -> Iterator[bytes]:
        """Yield the lines that a part completes. Raises FeedError for a line that is too long."""
        self._rest += part
        if b"\n" in part:
            *whole, rest = bytes(self._rest).split(b"\n")
            self._rest = bytearray(rest)
            yield from (line for line in whole if line.strip())
        self._check()

    def end(self) -> Iterator[bytes]:
        """Yield the last line, if it has no end."""
        if self._rest.strip():
            yield bytes(self._rest)
        self._rest.clear()

    def _check(self) -> None:
        if len(self._rest) > self._longest:
            raise FeedError(f"a record has more than {self._longest} bytes")


class Objects:
    """Splits bytes into JSON objects that follow each other, with or without blanks between them."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._rest = bytearray()
        self._at = 0
        self._depth = 0
        self._in_text = False

    def feed(self, part: bytes) -> Iterator[bytes]:
        """Yield the objects that a part completes. Raises FeedError for an object that is too long."""
        self._rest += part
        start = 0
        position = self._at
        while (mark := _MARKS.search(self._rest, position)) is not None:
            position = mark.end()
            sign = mark.group()
            if self._in_text:
                if sign == b"\\":
                    if position >= len(self._rest):
                        position -= 1
                        break
                    position += 1
                elif sign == b'"':
                    self._in_text = False
            elif sign == b'"':
                self._in_text = True
            elif sign in b"{[":
                self._depth += 1
            elif sign in b"}]":
                self._depth = max(0, self._depth - 1)
                if not self._depth:
                    yield bytes(self._rest[start:position]).strip(b" \t\r\n,")
                    start = position
        else:
            position = len(self._rest)
        del self._rest[:start]
        self._at = position - start
        if len(self._rest) > self._longest:
            raise FeedError(f"a record has more than {self._longest} bytes")

    def end(self) -> Iterator[bytes]:
        """Yield bytes that are no complete object."""
        if self._rest.strip():
            yield bytes(self._rest)
        self._rest.clear()


class Inflated:
    """Decompression of a body in gzip, in small parts.

    most: bytes of the whole body when it is expanded.
    """

    def __init__(self, most: int) -> None:
        self._decoder = zlib.decompressobj(wbits=31)
        self._most = most
        self._read = 0
        self._made = 0

    def feed(self, part: bytes) -> Iterator[bytes]:
        """Yield expanded parts. Raises FeedError for damaged bytes, and for a body that expands too much."""
        self._read += len(part)
        try:
            while part:
                made = self._decoder.decompress(part, _PART)
                self._made += len(made)
                if self._made > min(self._most, LONGEST + self._read * _MOST_EXPANDED):
                    raise FeedError(
                        f"{self._read} compressed bytes become more than {self._made - 1}: send smaller bodies"
                    )
                yield made
                part = self._decoder.unconsumed_tail
        except zlib.error as error:
            raise FeedError(f"the body is no gzip: {error}") from error
        if self._decoder.eof and self._decoder.unused_data:
            raise FeedError("bytes follow the end of the gzip body")


def parsed(data: bytes) -> dict[str, Any]:
    """Return a record. Raises ValueError with the reason."""
    if len(data) > LONGEST:
        raise ValueError(f"the record has more than {LONGEST} bytes")
    try:
        value = json.loads(data, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("the record is nested too deep") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"the record is no UTF-8: {error.reason}") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"the record is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError("the record is no object")
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
