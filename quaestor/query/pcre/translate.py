"""Translation of PCRE's syntax to that of two engines: RE2 (linear time) and `regex` (look-around and back references, bounded).

The translation only has to decide whether a pattern occurs, not where. Hence laziness, group numbers and names are dropped for
RE2.
Options are resolved while translating: each atom carries its own, since the engines scope them differently.

Patterns that PCRE 8 refuses are malformed. Constructs that neither engine shares (recursion, callouts, backtracking verbs,
single bytes, line breaks, grapheme clusters) raise UnsupportedQueryError.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Final

from quaestor.errors import UnsupportedQueryError
from quaestor.query.pcre.assertions import ASSERTIONS, WORD
from quaestor.query.pcre.brackets import Bracket, property_escape, read_bracket
from quaestor.query.pcre.case import CASED, other_cases
from quaestor.query.pcre.characters import CONTROL, ESCAPES, UNICODE_WORD, bracketed, escaped, set_work
from quaestor.query.pcre.first_character import PASSED, First, Opening, any_of, literal
from quaestor.query.pcre.groups import read_group
from quaestor.query.pcre.pieces import DEEPEST, LARGEST_SIZE, LONGEST, NAME, Options, Piece, Shape, require_work
from quaestor.query.pcre.quantifiers import QUANTIFIER, read_quantifier
from quaestor.query.pcre.reader import Reader
from quaestor.query.pcre.required_text import LiteralRuns, any_required, folded_alike
from quaestor.query.pcre.translation import Translation

ANY: Final = "(?s:.)"
"""A dot where the option s is set."""


def translate(source: str, options: Options) -> Translation:
    """Translate a pattern. O(length).

    Raises MalformedQueryError where PCRE would, UnsupportedQueryError for a pattern that cannot be expressed or is too large to
    compile. Both are known before an engine sees the pattern.
    """
    if len(source) > LONGEST:
        raise UnsupportedQueryError(f"a regular expression of {len(source)} characters, more than {LONGEST}")
    return Translator(source, options).run()


class Translator:
    """The state of one translation."""

    __slots__ = (
        "ahead",
        "ascii_only",
        "cases",
        "characters",
        "groups",
        "leading",
        "linear",
        "names",
        "newline_sensitive",
        "options",
        "plain",
        "reader",
        "references",
        "shape",
    )

    def __init__(self, source: str, options: Options) -> None:
        self.reader = Reader(source)
        self.options = options
        self.groups = 0
        self.names: set[str] = set()
        self.references: list[int | str] = []
        self.linear = True
        self.plain = True
        self.newline_sensitive = False
        self.ascii_only = False
        self.leading = True
        self.ahead = 0
        self.cases = 0
        self.characters: Counter[str] = Counter()
        self.shape = Shape()

    def run(self) -> Translation:
        reader = self.reader
        while verb := _LEADING_VERB.match(reader.source, reader.at):
            reader.at = verb.end()
            if verb[1] == "UCP":
                self.options = replace(self.options, unicode=True)
        piece = self.alternatives(depth=0)
        if not reader.done:
            raise reader.malformed("unmatched parentheses")
        if piece.size > LARGEST_SIZE:
            raise reader.malformed("regular expression is too large")
        require_work(piece.work)
        for reference in self.references:
            known = reference in self.names if isinstance(reference, str) else 0 < reference <= self.groups
            if not known:
                raise reader.malformed(f"reference to non-existent subpattern {reference!r}")
        if any(self.characters[character] > 1 for character in piece.first.asserted):
            raise UnsupportedQueryError("a regular expression of which PCRE 8 mistakes the first character")
        return Translation(
            linear=piece.linear if self.linear else None,
            full=piece.full,
            newline_sensitive=self.newline_sensitive,
            ascii_only=self.ascii_only,
            plain=self.plain,
            starts=self.shape.starts,
            prefix="".join(self.shape.text),
            only_prefix=self.shape.simple,
            ends=self.shape.ends,
            required=piece.required,
            work=piece.work,
        )

    def alternatives(self, depth: int, *, look_behind: bool = False, at_most: int | None = None) -> Piece:
        """Translate up to the closing parenthesis, which is left, or the end.

        at_most: number of branches allowed.
        """
        if depth > DEEPEST:
            raise self.reader.malformed("parentheses are too deeply nested")
        outer = self.options
        leading = self.leading
        pieces = [self._sequence(depth, leading=leading)]
        while self.reader.take("|"):
            if depth == 0:
                self.shape = Shape(open=False, simple=False)
            pieces.append(self._sequence(depth, leading=leading))
        self.options = outer
        if at_most is not None and len(pieces) > at_most:
            raise self.reader.malformed(f"conditional group contains more than {at_most} branches")
        widths = {piece.width for piece in pieces}
        if look_behind:
            if None in widths:
                raise self.reader.malformed("lookbehind assertion is not fixed length")
            width: int | None = 0
        else:
            width = widths.pop() if len(widths) == 1 else None
        linear, full = "|".join(piece.linear for piece in pieces), "|".join(piece.full for piece in pieces)
        return Piece(
            linear,
            full,
            width,
            size=sum(piece.size for piece in pieces) + 3 * (len(pieces) - 1),
            work=sum(piece.work for piece in pieces) + len(pieces) - 1,
            first=any_of(piece.first for piece in pieces),
            required=any_required([piece.required for piece in pieces]),
        )

    def _sequence(self, depth: int, *, leading: bool) -> Piece:
        """Translate one branch. leading: nothing stands before it in the whole pattern."""
        linear: list[str] = []
        full: list[str] = []
        width: int | None = 0
        size = work = 0
        at_start = True
        opening, runs = Opening(), LiteralRuns()
        while True:
            self._skip()
            if self.reader.done or self.reader.peek() in ("|", ")"):
                return Piece(
                    "".join(linear),
                    "".join(full),
                    width,
                    size=size,
                    work=work,
                    first=opening.first(),
                    required=runs.required(),
                )
            self.leading = leading and at_start
            pieces = self._atoms(depth)
            self._skip()
            for position, atom in enumerate(pieces, start=1):
                # A quantifier after a quotation belongs to its last character.
                lowest, highest, piece = self._quantified(atom) if position == len(pieces) else (1, 1, atom)
                # PCRE 8 takes `.*` for an anchor although a look-ahead contains it: (?s)(?=.*a)b is searched at the start only.
                if self.ahead and leading and at_start and atom.full == ANY and (lowest, highest) == (0, None):
                    raise UnsupportedQueryError("a regular expression that PCRE 8 mistakes for an anchored one")
                if depth == 0:
                    if piece.linear == "\\z" and piece.full == "$" and self._at_end_of_branch():
                        # At the end of a branch, the newline before which $ also holds can be consumed instead.
                        piece = replace(piece, linear="\\n?\\z")
                    self.shape.see(piece, lowest, highest, at_start=at_start)
                if piece.linear == "\\z" and piece.full != "\\Z":
                    self.newline_sensitive = True
                at_start = False
                opening.see(piece.first, lowest)
                if piece.character:
                    runs.see_character(piece.character, caseless=piece.caseless, lowest=lowest, highest=highest)
                elif piece.width != 0:
                    runs.see_other(piece.required, lowest=lowest)
                else:
                    runs.see_beside(piece.required, lowest=lowest)
                linear.append(piece.linear)
                full.append(piece.full)
                size += piece.size
                work += piece.work
                width = None if width is None or piece.width is None else width + piece.width

    def _at_end_of_branch(self) -> bool:
        return self.reader.done or self.reader.peek() == "|"

    def _skip(self) -> None:
        """Skip comments, ignored white space, and inline options."""
        reader = self.reader
        while True:
            if reader.take("(?#"):
                reader.until(")", "comment")
            elif not (reader.take("\\Q\\E") or reader.take("\\E") or reader.skip_one(extended=self.options.extended)):
                return

    def _quantified(self, piece: Piece) -> tuple[int, int | None, Piece]:
        """Read an optional quantifier. Returns the least and greatest (None: no bound) repetition too."""
        quantifier = read_quantifier(self.reader, self.options, quantifiable=piece.quantifiable)
        if quantifier is None:
            return 1, 1, piece
        self.plain = False
        self.linear = self.linear and quantifier.linear
        return quantifier.lowest, quantifier.highest, quantifier.of(piece)

    def _atoms(self, depth: int) -> list[Piece]:
        """Return the next pieces: usually one; several for a quotation, none for an item without meaning by itself."""
        reader = self.reader
        character = reader.next()
        if character == "\\":
            return self._escape()
        if character == "(":
            self.plain = False
            return read_group(self, depth + 1)
        if character == "[":
            bracket = read_bracket(reader, self.options)
            if self.options.ignore_case:
                self.cases += min(bracket.written, CASED)
                require_work(self.cases)
            text = bracket.text(ignore_case=self.options.ignore_case)
            return [Piece(text, text, size=33, work=set_work(text), first=self._first(bracket.only))]
        if character == ".":
            text = ANY if self.options.dot_all else "[^\\n]"
            return [Piece(text, text, work=set_work("[^\\n]"))]
        if character == "^":
            return [self._start()]
        if character == "$":
            if self.options.multiline:
                return [Piece("(?m:$)", "(?m:$)", 0, quantifiable=False)]
            return [Piece("\\z", "$", 0, quantifiable=False)]
        if character in "*+?" or (character == "{" and QUANTIFIER.match(reader.source, reader.at - 1)):
            raise reader.malformed("nothing to repeat")
        return [self._literal(ord(character))]

    def _start(self) -> Piece:
        if not self.options.multiline:
            return Piece("\\A", "\\A", 0, quantifiable=False)
        # Unlike RE2, PCRE finds no line after a newline at the end of the text.
        self.newline_sensitive = True
        return Piece("(?m:^)", "(?:\\A|(?<=\\n)(?!\\Z))", 0, quantifiable=False)

    def _literal(self, code: int) -> Piece:
        character = chr(code)
        text = escaped(code)
        size = 1 + len(character.encode())
        if self.options.ignore_case and (others := other_cases(character)):
            text = bracketed(tuple((ord(case), ord(case)) for case in (character, *others)))
            plain = folded_alike((character, *others))
            first = self._first(character)
            return Piece(text, text, size=size, work=set_work(text), first=first, character=plain, caseless=True)
        first = self._first(character)
        return Piece(text, text, literal=character, size=size, work=size - 1, first=first, character=character)

    def _first(self, character: str) -> First:
        """Return the first character of a literal, and count it."""
        first = literal(character)
        self.characters[first.character] += 1
        return first

    def _escape(self) -> list[Piece]:
        reader = self.reader
        letter = reader.next()
        if not letter:
            raise reader.malformed("\\ at end of pattern")
        if letter == "Q":
            return [self._literal(ord(character)) for character in reader.until("\\E", "\\Q")]
        if letter in ESCAPES:
            bracket = Bracket()
            bracket.add_escape(letter, self.options)
            text = bracket.text(ignore_case=False)
            return [Piece(text, text, work=set_work(text))]
        if letter in CONTROL:
            return [self._literal(CONTROL[letter])]
        if letter in "pP":
            text = property_escape(reader, letter)
            return [Piece(text, text, work=set_work(text))]
        if letter in ASSERTIONS:
            linear, full = ASSERTIONS[letter]
            self.ascii_only = self.ascii_only or letter == "B"
            if letter in "bB" and self.options.unicode:
                self.linear = False
                full = full.replace(WORD, UNICODE_WORD)
            return [Piece(linear, full, 0, quantifiable=False, first=PASSED if letter in "bB" else First())]
        if letter == "K":
            return []
        if letter == "N":
            if _NAMED_CHARACTER.match(reader.source, reader.at):
                raise reader.malformed("\\N{name} is not supported")
            return [Piece("[^\\n]", "[^\\n]", work=set_work("[^\\n]"))]
        if letter in "CRX":
            # PCRE 8 lets a repeated dot swallow what \R matches, and has other grapheme clusters (\X) than today's Unicode.
            raise UnsupportedQueryError(f"a regular expression with \\{letter}")
        if letter in "lLuU":
            raise reader.malformed(f"\\{letter} is not supported")
        if letter in "123456789":
            return [self._digit(letter)]
        if letter in "gk":
            return [self._named_reference(letter)]
        code = reader.code_point(letter)
        return [self._literal(ord(letter) if code is None else code)]

    def _digit(self, first: str) -> Piece:
        """Return a back reference or a character by its octal number, decided like PCRE."""
        match = re.compile(r"[0-9]*").match(self.reader.source, self.reader.at)
        rest = match[0] if match else ""
        number = int(first + rest)
        if number < 8 or number <= self.groups:
            self.reader.at += len(rest)
            return self.reference(number)
        if first in "89":
            return self._literal(ord(first))
        return self._literal(self.reader.octal(first))

    def reference(self, group: int | str) -> Piece:
        self.linear = False
        self.references.append(group)
        text = f"(?P={group})" if isinstance(group, str) else f"(?:\\{group})"
        return Piece("", f"(?i:{text})" if self.options.ignore_case else text, None)

    def _named_reference(self, letter: str) -> Piece:
        reader = self.reader
        opening = reader.peek()
        closing = {"{": "}", "<": ">", "'": "'"}.get(opening)
        if letter == "g" and opening in ("<", "'"):
            raise UnsupportedQueryError("a regular expression with a subroutine call")
        if closing is None:
            match = re.compile(r"-?[0-9]+").match(reader.source, reader.at)
            if letter == "k" or match is None:
                raise reader.malformed(f"\\{letter} is not followed by a group")
            reader.at = match.end()
            name = match[0]
        else:
            reader.next()
            name = reader.until(closing, f"\\{letter}")
        if letter == "g" and name.lstrip("-").isdigit():
            number = int(name)
            return self.reference(self.groups + 1 + number if number < 0 else number)
        if not NAME.fullmatch(name):
            raise reader.malformed("subpattern name expected")
        return self.reference(name)


_LEADING_VERB: Final = re.compile(r"\(\*(UTF8?|UCP)\)")
_NAMED_CHARACTER: Final = re.compile(r"\{(?![0-9]+(?:,[0-9]*)?\})")
