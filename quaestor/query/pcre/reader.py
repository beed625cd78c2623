"""A cursor over a pattern, with the small steps that several constructs share."""

from __future__ import annotations

from typing import Final

from quaestor.errors import MalformedQueryError

_HEX: Final = frozenset("0123456789abcdefABCDEF")
_OCTAL: Final = frozenset("01234567")
_SPACES: Final = frozenset(" \t\n\v\f\r")


class Reader:
    """Reads a pattern from left to right."""

    __slots__ = ("at", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self.at = 0

    @property
    def done(self) -> bool:
        return self.at >= len(self.source)

    def peek(self, length: int = 1) -> str:
        return self.source[self.at : self.at + length]

    def next(self) -> str:
        """Return the next character, "" at the end."""
        character = self.peek()
        self.at += 1
        return character

    def take(self, text: str) -> bool:
        """Skip `text` if it comes next; return whether it did."""
        if self.source.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def until(self, end: str, what: str) -> str:
        """Return the text up to `end`, and skip both. Raises MalformedQueryError if `end` does not come."""
        end_at = self.source.find(end, self.at)
        if end_at < 0:
            raise self.malformed(f"missing {end} after {what}")
        text = self.source[self.at : end_at]
        self.at = end_at + len(end)
        return text

    def skip_one(self, *, extended: bool) -> bool:
        """Skip one comment or blank that the option x ignores, if it is set and one comes next; return whether one did."""
        if not extended:
            return False
        if self.peek() == "#":
            self.until("\n", "comment")
            return True
        if self.peek() in _SPACES:
            self.next()
            return True
        return False

    def digits(self, allowed: frozenset[str], limit: int) -> str:
        start = self.at
        while self.at - start < limit and not self.done and self.source[self.at] in allowed:
            self.at += 1
        return self.source[start : self.at]

    def malformed(self, reason: str) -> MalformedQueryError:
        return MalformedQueryError(f"regular expression {self.source!r} is invalid at {self.at}: {reason}")

    def code_point(self, letter: str) -> int | None:
        """Return the code point after `\\x`, `\\o`, `\\c` or `\\0`; None if the letter is none of these."""
        if letter == "x":
            if self.take("{"):
                return self._braced("x", _HEX, 16)
            return int(self.digits(_HEX, 2) or "0", 16)
        if letter == "o":
            if not self.take("{"):
                raise self.malformed("missing opening brace after \\o")
            return self._braced("o", _OCTAL, 8)
        if letter == "c":
            character = self.next()
            if not character:
                raise self.malformed("\\c at end of pattern")
            if not character.isascii():
                raise self.malformed("\\c must be followed by an ASCII character")
            return ord(character.upper()) ^ 0x40
        if letter == "0":
            return int("0" + self.digits(_OCTAL, 2), 8)
        return None

    def _braced(self, letter: str, allowed: frozenset[str], base: int) -> int:
        digits = self.digits(allowed, len(self.source))
        if not self.take("}"):
            raise self.malformed(f"unexpected character in \\{letter}{{}} (closing brace missing?)")
        if not digits:
            raise self.malformed(f"digits missing in \\{letter}{{}}")
        return self._valid(int(digits, base))

    def octal(self, first: str) -> int:
        """Return a character by up to three octal digits, of which the first has been read."""
        return self._valid(int(first + self.digits(_OCTAL, 2), 8))

    def _valid(self, code: int) -> int:
        if code > 0x10FFFF:
            raise self.malformed("character value is too large")
        if 0xD800 <= code <= 0xDFFF:
            raise self.malformed("disallowed Unicode code point")
        return code
