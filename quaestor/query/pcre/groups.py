"""Parentheses: groups, look-around, inline options."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, Protocol

from quaestor.errors import UnsupportedQueryError
from quaestor.query.pcre.first_character import PASSED
from quaestor.query.pcre.pieces import LETTERS, NAME, Options, Piece
from quaestor.query.pcre.reader import Reader

_LOOK_AROUND: Final = ("?<=", "?<!", "?=", "?!")
_VERB: Final = re.compile(r"\*(ACCEPT|COMMIT|F|FAIL|(MARK|PRUNE|SKIP|THEN)?(:[^)]*)?|PRUNE|SKIP|THEN)\)")
_OPTIONS: Final = re.compile(r"\?([imsxUJX]*)(?:-([imsxUJX]*))?([:)])")
_CALL: Final = re.compile(r"\?(R\)|[+-]?[0-9]+\)|&|P>)")


class Grammar(Protocol):
    """The translator's interface for reading a group."""

    reader: Reader
    options: Options
    groups: int
    names: set[str]
    linear: bool
    ahead: int

    def alternatives(self, depth: int, *, look_behind: bool = False, at_most: int | None = None) -> Piece: ...

    def reference(self, group: int | str) -> Piece: ...


def read_group(grammar: Grammar, depth: int) -> list[Piece]:
    """Read from after the opening parenthesis to after the closing one. [] for inline options: they yield nothing."""
    reader = grammar.reader
    if reader.peek() == "*" and re.compile(r"\*(?:[A-Z]+[:)]|:)").match(reader.source, reader.at):
        if not _VERB.match(reader.source, reader.at):
            raise reader.malformed("(*VERB) not recognized or malformed")
        raise UnsupportedQueryError("a regular expression with (*VERB)")
    if reader.peek() != "?":
        grammar.groups += 1
        return [_inner(grammar, depth, "(?:", "(", overhead=8)]
    for opening in _LOOK_AROUND:
        if reader.take(opening):
            grammar.linear = False
            behind, ahead = opening.startswith("?<"), opening == "?="
            inner = _inner(grammar, depth, "(?:", f"({opening}", look_behind=behind, ahead=ahead)
            first = inner.first.as_look_ahead() if opening == "?=" else PASSED
            required = () if opening.endswith("!") else inner.required
            return [replace(inner, full=f"(?:{inner.full})", width=0, first=first, required=required)]
    if reader.take("?>"):
        grammar.linear = False
        return [_inner(grammar, depth, "(?:", "(?>")]
    if _CALL.match(reader.source, reader.at):
        raise UnsupportedQueryError("a regular expression that calls a part of itself")
    if reader.take("?("):
        return [_condition(grammar, depth)]
    for opening, what in (("?|", "alternatives that share group numbers"), ("?C", "a callout")):
        if reader.take(opening):
            raise UnsupportedQueryError(f"a regular expression with {what}")
    if reader.take("?P="):
        name = reader.until(")", "group name")
        if not NAME.fullmatch(name):
            raise reader.malformed("subpattern name expected")
        return [grammar.reference(name)]
    for opening, closing in (("?P<", ">"), ("?<", ">"), ("?'", "'")):
        if reader.take(opening):
            return [_named(grammar, depth, closing)]
    return _with_options(grammar, depth)


def _named(grammar: Grammar, depth: int, closing: str) -> Piece:
    reader = grammar.reader
    name = reader.until(closing, "group name")
    if not NAME.fullmatch(name):
        raise reader.malformed("subpattern name expected")
    if name in grammar.names:
        raise reader.malformed("two named subpatterns have the same name")
    grammar.names.add(name)
    grammar.groups += 1
    return _inner(grammar, depth, "(?:", f"(?P<{name}>", overhead=8)


def _with_options(grammar: Grammar, depth: int) -> list[Piece]:
    reader = grammar.reader
    match = _OPTIONS.match(reader.source, reader.at)
    if match is None:
        raise reader.malformed("unrecognized character after (? or (?-")
    if "J" in match[0]:
        raise UnsupportedQueryError("a regular expression with duplicate group names")
    reader.at = match.end()
    changes = {LETTERS[letter]: True for letter in match[1] if letter in LETTERS}
    changes |= {LETTERS[letter]: False for letter in match[2] or "" if letter in LETTERS}
    outer = grammar.options
    grammar.options = replace(outer, **changes)
    if match[3] == ")":
        return []  # in force until the end of the enclosing group, where the translator restores the options
    inner = _inner(grammar, depth, "(?:", "(?:")
    grammar.options = outer
    return [inner]


def _condition(grammar: Grammar, depth: int) -> Piece:
    """Read `(?(1)yes|no)`: one branch if the group took part in the match, the other if not."""
    reader = grammar.reader
    if reader.peek() == "?":
        raise UnsupportedQueryError("a regular expression with a look-around condition")
    name = reader.until(")", "condition")
    if name[:1] + name[-1:] in ("<>", "''"):
        name = name[1:-1]
    if name == "DEFINE" or name[:1] == "R":
        raise UnsupportedQueryError("a regular expression with a condition on recursion")
    if name.lstrip("+-").isdigit():
        number = int(name)
        if name[0] in "+-":
            number += grammar.groups + (number < 0)
        grammar.reference(number)
        name = str(number)
    elif NAME.fullmatch(name):
        grammar.reference(name)
    else:
        raise reader.malformed("assertion expected after (?( or (?(?C)")
    # PCRE 8 takes a condition for a look-ahead where it looks for anchors.
    return replace(_inner(grammar, depth, "(?:", f"(?({name})", at_most=2, ahead=True), required=())


def _inner(
    grammar: Grammar,
    depth: int,
    linear: str,
    full: str,
    *,
    look_behind: bool = False,
    ahead: bool = False,
    at_most: int | None = None,
    overhead: int = 6,
) -> Piece:
    grammar.ahead += ahead
    inner = grammar.alternatives(depth, look_behind=look_behind, at_most=at_most)
    grammar.ahead -= ahead
    if not grammar.reader.take(")"):
        raise grammar.reader.malformed("missing )")
    text = f"{full}{inner.full})"
    return Piece(
        f"{linear}{inner.linear})",
        text,
        inner.width,
        size=inner.size + overhead,
        work=inner.work + 2,
        group=True,
        first=inner.first,
        required=inner.required,
    )
