"""Masking: queries, JSON and comments in a text become characters that the grammar of statements reads as one word.

All other characters keep their places. Errors of the grammar therefore have the lines and columns of the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quaestor.channels.statements.errors import StatementError

BODY: Final = "\x01"
JSON: Final = "\x02"
MOST_CHARACTERS: Final = 256 * 1024
MOST_DEPTH: Final = 40
"""Limits of a text: its length, and how deep parentheses lie in one another."""

_QUERY_WORDS: Final = frozenset({"select", "with", "from", "values"})
_KINDS: Final = frozenset({"type", "dataset", "feed", "function", "channel", "broker", "procedure"})
_TOKEN: Final = re.compile(
    r"""(?P<space>\s+) | (?P<line>--[^\n]*+) | (?P<comment>/\*)
    | (?P<string>'[^']*+(?:''[^']*+)*+' | "[^"]*+(?:""[^"]*+)*+") | (?P<unclosed>['"])
    | (?P<open>[({\[]) | (?P<close>[)}\]]) | (?P<end>;) | (?P<word>\w++) | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT: Final = re.compile(r"/\*|\*/")
_PAIRS: Final = {"(": ")", "{": "}", "[": "]"}
_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufeff]")


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


@dataclass(slots=True)
class _Statement:
    """State of the statement that is being masked.

    open: brackets that are open.
    words: words outside brackets, in small letters.
    depth: brackets around the beginning of a body.
    body: where a body began; None: there is no body.
    """

    open: list[_Token] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    depth: int = 0
    body: int | None = None
    masked_json: bool = False


def place(text: str, position: int) -> tuple[int, int]:
    """Return line and column of a position, each from 1."""
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


def masked(text: str, start: int = 0, end: int | None = None) -> str:
    """Return a text of the same length, with bodies, JSON and comments masked. Raises StatementError.

    start, end: part that counts; the rest becomes space.
    """
    end = len(text) if end is None else end
    if len(text) > MOST_CHARACTERS:
        raise StatementError(1, 1, f"the text has {len(text)} characters, at most {MOST_CHARACTERS} are allowed")
    if fault := _FORBIDDEN.search(text):
        raise StatementError(
            *place(text, fault.start()), f"the character U+{ord(fault[0]):04X} is not allowed; delete it"
        )
    pieces = [_mask(text[:start], " ")]
    pieces += [text[a:b] if mask is None else _mask(text[a:b], mask) for a, b, mask in _regions(text, start, end)]
    pieces.append(_mask(text[end:], " "))
    return "".join(pieces)


def _mask(part: str, mask: str) -> str:
    return re.sub(r"[^\n]", mask, part)


def _regions(text: str, start: int, end: int) -> Iterator[tuple[int, int, str | None]]:
    """Yield the regions of the text in order, each with its mask; None: the region stays."""
    statement = _Statement()
    position = start
    while position < end:
        token = _next(text, position, end)
        position = token.end
        if token.kind == "unclosed":
            raise StatementError(
                *place(text, token.start), "the string does not end", (f"{token.text} at the end of the string",)
            )
        if token.kind == "open" and token.text == "{" and statement.body is None and _after_with(statement):
            position = _json_end(text, token.start, end)
            statement.masked_json = True
            yield token.start, position, JSON
            continue
        if token.kind == "end" and not statement.open:
            yield from _ended(text, statement, token.start)
            yield token.start, token.end, None
            statement = _Statement()
            continue
        if statement.body is None and _begins_query(token, statement):
            statement.body, statement.depth = token.start, len(statement.open)
        if token.kind == "close" and statement.body is not None and len(statement.open) == statement.depth > 0:
            yield from _ended(text, statement, token.start)
            statement.body = None
        _nest(text, token, statement)
        if statement.body is None:
            yield token.start, token.end, " " if token.kind in ("line", "comment") else None
            if token.text == "{" and len(statement.open) == 1 and not _of_type(statement.words):
                statement.body, statement.depth = token.end, 1
        if token.kind == "word" and not statement.open:
            statement.words.append(token.text.lower())
    if statement.open:
        token = statement.open[-1]
        raise StatementError(*place(text, token.start), f"{token.text!r} is not closed", (repr(_PAIRS[token.text]),))
    yield from _ended(text, statement, end)


def _next(text: str, position: int, end: int) -> _Token:
    match = _TOKEN.match(text, position, end)
    assert match is not None, "one of the alternatives is any character"
    kind = match.lastgroup or ""
    stop = _comment_end(text, position, end) if kind == "comment" else match.end()
    return _Token(kind, match[0], position, stop)


def _comment_end(text: str, start: int, end: int) -> int:
    depth = 0
    for mark in _COMMENT.finditer(text, start, end):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    raise StatementError(*place(text, start), "the comment does not end", ("*/",))


def _after_with(statement: _Statement) -> bool:
    return not statement.open and not statement.masked_json and _ends_with(statement.words, "with")


def _begins_query(token: _Token, statement: _Statement) -> bool:
    """Whether a query begins here that ends with the statement: at its start, after AS, or after EXPLAIN."""
    if statement.open:
        return False
    words = statement.words
    first = not words or words in (["explain"], ["explain", "analyze"])
    if token.kind == "word" and token.text.lower() in _QUERY_WORDS:
        return first or _ends_with(words, "as")
    return token.text == "(" and (first or (_ends_with(words, "as") and not _of_type(words)))


def _ends_with(words: list[str], keyword: str) -> bool:
    """Whether the last word is this keyword of a statement that creates something, and not the name of the thing."""
    if words[-1:] != [keyword] or words[0] not in ("create", "explain"):
        return False
    kind = next((position for position, word in enumerate(words) if word in _KINDS), len(words))
    return len(words) != kind + 2


def _of_type(words: list[str]) -> bool:
    """Whether the statement creates a type: its brackets hold columns."""
    return words[:2] == ["create", "type"] or words[:4] == ["create", "or", "replace", "type"]


def _ended(text: str, statement: _Statement, end: int) -> Iterator[tuple[int, int, str | None]]:
    """Yield a body that ends here, without the space around it."""
    if statement.body is None:
        return
    inside = text[statement.body : end]
    start = statement.body + len(inside) - len(inside.lstrip())
    stop = max(start, statement.body + len(inside.rstrip()))
    yield statement.body, start, None
    yield start, stop, BODY
    yield stop, end, None


def _nest(text: str, token: _Token, statement: _Statement) -> None:
    if token.kind == "open":
        statement.open.append(token)
        if len(statement.open) > MOST_DEPTH:
            raise StatementError(*place(text, token.start), f"brackets lie more than {MOST_DEPTH} deep")
    elif token.kind == "close":
        opened = statement.open.pop() if statement.open else None
        if opened is None:
            raise StatementError(*place(text, token.start), f"{token.text!r} closes nothing; delete it")
        if _PAIRS[opened.text] != token.text:
            raise StatementError(
                *place(text, token.start),
                f"{token.text!r} closes {opened.text!r} of line {place(text, opened.start)[0]}",
                (repr(_PAIRS[opened.text]),),
            )


def _json_end(text: str, start: int, end: int) -> int:
    """Return the end of the JSON object that begins here."""
    depth = 0
    for part in re.compile(r'"(?:[^"\\]|\\.)*+"?|[{\[]|[}\]]', re.DOTALL).finditer(text, start, end):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(part[0], 0)
        if depth > MOST_DEPTH:
            raise StatementError(*place(text, part.start()), f"brackets lie more than {MOST_DEPTH} deep")
        if not depth:
            return _checked_json(text, start, part.end())
    return _checked_json(text, start, end)


def _checked_json(text: str, start: int, end: int) -> int:
    try:
        json.loads(text[start:end])
    except json.JSONDecodeError as error:
        raise StatementError(*place(text, start + error.pos), f"the options are not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise StatementError(*place(text, start), f"the options are not JSON: {error}") from error
    return end
