"""Bracket expressions: `[a-z]`, `[^\\d_]`, `[[:alpha:]]`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from quaestor.errors import UnsupportedQueryError
from quaestor.query.pcre.case import folded
from quaestor.query.pcre.characters import (
    CONTROL,
    ESCAPES,
    POSIX,
    UNICODE_ESCAPES,
    UNICODE_POSIX,
    bracketed,
    complement,
    union,
)
from quaestor.query.pcre.pieces import Options
from quaestor.query.pcre.reader import Reader

_POSIX_OUTSIDE: Final = re.compile(r":\^?[a-z]+:\]|\.[^]\\]*\.\]|=[^]\\]*=\]")


@dataclass(slots=True)
class Bracket:
    """The characters between the brackets.

    ranges: characters as written; ignoring case applies to them.
    sets: sets of escapes and POSIX names; ignoring case does not apply to them.
    properties: `\\p{...}` escapes, verbatim; ignoring case does not apply to them either.
    """

    negated: bool = False
    ranges: list[tuple[int, int]] = field(default_factory=list)
    sets: list[tuple[int, int]] = field(default_factory=list)
    properties: list[str] = field(default_factory=list)

    def add_escape(self, letter: str, options: Options) -> None:
        """Add the set of `\\d` or a similar escape."""
        if options.unicode and letter in "WS":
            raise UnsupportedQueryError(f"a regular expression with (*UCP) and \\{letter}")
        if not options.unicode or letter not in UNICODE_ESCAPES:
            self.sets.extend(ESCAPES[letter])
            return
        ranges, properties = UNICODE_ESCAPES[letter]
        self.sets.extend(ranges)
        self.properties.extend(properties)

    @property
    def only(self) -> str:
        """The single character in the brackets, if there is no other; PCRE takes that for a literal."""
        if self.negated or self.sets or self.properties or len(self.ranges) != 1:
            return ""
        low, high = self.ranges[0]
        return chr(low) if low == high else ""

    @property
    def written(self) -> int:
        """Number of written characters, each of which costs a look-up where case is ignored."""
        return sum(high - low + 1 for low, high in self.ranges)

    def text(self, *, ignore_case: bool) -> str:
        """Return the bracket expression for both engines. Cases are written out, because the engines' cases differ from
        PCRE's."""
        written = folded(union(self.ranges)) if ignore_case else tuple(self.ranges)
        return bracketed(union((*written, *self.sets)), self.properties, negated=self.negated)


def read_bracket(reader: Reader, options: Options) -> Bracket:
    """Read from after the opening bracket to after the closing one. Raises MalformedQueryError like PCRE."""
    if _POSIX_OUTSIDE.match(reader.source, reader.at):
        raise reader.malformed("POSIX named classes are supported only within a class")
    bracket = Bracket(negated=reader.take("^"))
    first = True
    quoting = False
    while True:
        if reader.done:
            raise reader.malformed("missing terminating ] for character class")
        if quoting:
            if reader.take("\\E"):
                quoting = False
                continue
        elif reader.take("\\Q"):
            quoting = True
            continue
        elif reader.take("\\E"):
            continue
        elif reader.peek() == "]" and not first:
            reader.next()
            return bracket
        first = False
        low = _member(reader, bracket, quoting, options)
        if quoting or reader.peek() != "-" or reader.peek(2) in ("-]", "-"):
            if low is not None:
                bracket.ranges.append((low, low))
            continue
        reader.next()
        if low is None:
            # After a set a hyphen is a literal.
            bracket.ranges.append((ord("-"), ord("-")))
            continue
        quoted_end = reader.take("\\Q")
        high = _member(reader, Bracket(), quoted_end, options)
        quoting = quoted_end
        if high is None:
            raise reader.malformed("invalid range in character class")
        if high < low:
            raise reader.malformed("range out of order in character class")
        bracket.ranges.append((low, high))


def _member(reader: Reader, bracket: Bracket, quoting: bool, options: Options) -> int | None:
    """Return one character, or add one set to the bracket."""
    if reader.source.startswith(("[[:<:]]", "[[:>:]]"), reader.at - 1):
        raise UnsupportedQueryError("a regular expression with [[:<:]] or [[:>:]]")
    if not quoting and reader.peek() == "[" and reader.peek(2) in ("[:", "[.", "[="):
        name = _posix_name(reader)
        if name is not None:
            _add_posix(reader, bracket, name, options)
            return None
    character = reader.next()
    if quoting or character != "\\":
        return ord(character)
    letter = reader.next()
    if not letter:
        raise reader.malformed("\\ at end of pattern")
    if letter in ESCAPES:
        bracket.add_escape(letter, options)
        return None
    if letter in "pP":
        bracket.properties.append(property_escape(reader, letter))
        return None
    if letter == "b":
        return 0x08
    if letter in CONTROL:
        return CONTROL[letter]
    if letter in "NLlUu":
        raise reader.malformed(f"\\{letter} is not supported")
    if letter in "1234567":
        return reader.octal(letter)
    code = reader.code_point(letter)
    return ord(letter) if code is None else code


def _add_posix(reader: Reader, bracket: Bracket, name: str, options: Options) -> None:
    negated, name = name.startswith("^"), name.removeprefix("^")
    if options.ignore_case and name in ("upper", "lower"):
        name = "alpha"
    if name not in POSIX:
        raise reader.malformed("unknown POSIX class name")
    if not options.unicode:
        bracket.sets.extend(complement(POSIX[name]) if negated else POSIX[name])
    elif negated or name not in UNICODE_POSIX:
        raise UnsupportedQueryError(f"a regular expression with (*UCP) and [:{name}:]")
    else:
        ranges, properties = UNICODE_POSIX[name]
        bracket.sets.extend(ranges)
        bracket.properties.extend(properties)


def _posix_name(reader: Reader) -> str | None:
    """Return the name in `[:name:]`, or None if the text is not of that form."""
    kind = reader.peek(2)[1]
    end = reader.source.find(kind + "]", reader.at + 2)
    name = reader.source[reader.at + 2 : end]
    if end < 0 or not name.lstrip("^").isalpha():
        return None
    if kind != ":":
        raise reader.malformed("POSIX collating elements are not supported")
    reader.at = end + 2
    return name


def property_escape(reader: Reader, letter: str) -> str:
    """Return a `\\p` or `\\P` escape, verbatim for both engines."""
    if reader.take("{"):
        name = reader.until("}", "\\p")
        if name.startswith("^"):
            return f"\\{'P' if letter == 'p' else 'p'}{{{name[1:]}}}"
        return f"\\{letter}{{{name}}}"
    name = reader.next()
    if not name:
        raise reader.malformed("malformed \\P or \\p sequence")
    return f"\\{letter}{{{name}}}"
