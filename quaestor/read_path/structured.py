"""Structured field values (RFC 9651), as far as caches need them: a Dictionary of bare items, a List of Strings. Pure.

Parsing is strict, as the RFC asks: one mistake anywhere, and the whole field is as if it were not there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MAX_FIELD_BYTES = 16_384
_KEY = re.compile(r"[a-z*][a-z0-9_\-.*]*")
_INTEGER = re.compile(r"-?[0-9]{1,15}(?![0-9.])")
_DECIMAL = re.compile(r"-?[0-9]{1,12}\.[0-9]{1,3}(?![0-9])")
_STRING = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_TOKEN = re.compile(r"[A-Za-z*][!#$%&'*+\-.^_`|~0-9A-Za-z:/]*")
_OTHER = re.compile(r":[A-Za-z0-9+/=]*:|@-?[0-9]{1,15}(?![0-9.])")
_BOOLEAN = re.compile(r"\?([01])")
_ESCAPED = re.compile(r'\\(["\\])')


class Token(str):
    """A bare word, as opposed to a quoted string."""

    __slots__ = ()


Item = int | float | bool | str | Token | None
"""None: a kind of item that nothing here looks at (byte sequence, date, inner list)."""


class _MalformedError(Exception):
    pass


def dictionary(field_lines: list[bytes]) -> Mapping[str, Item] | None:
    """The members of a Dictionary, the last of each name; parameters are dropped. None: malformed, empty or enormous."""
    text = _text(field_lines)
    if not text:
        return None
    members: dict[str, Item] = {}
    try:
        at = 0
        while True:
            key = _KEY.match(text, at)
            if key is None:
                raise _MalformedError
            at = key.end()
            value: Item = True
            if text.startswith("=", at):
                value, at = _member(text, at + 1)
            at = _parameters(text, at)
            members.pop(key[0], None)
            members[key[0]] = value
            if at == len(text):
                return members
            at = _next(text, at)
    except _MalformedError:
        return None


def strings(field_lines: list[bytes]) -> tuple[str, ...] | None:
    """The Strings of a List of Strings; parameters are dropped. None: malformed, enormous, or a member is no String."""
    text = _text(field_lines)
    if text is None:
        return None
    found: list[str] = []
    try:
        at = 0
        while at < len(text):
            item, at = _member(text, at)
            if not isinstance(item, str) or isinstance(item, Token):
                return None
            found.append(item)
            at = _parameters(text, at)
            if at < len(text):
                at = _next(text, at)
    except _MalformedError:
        return None
    return tuple(found)


def _text(field_lines: list[bytes]) -> str | None:
    joined = b",".join(field_lines)
    if len(joined) > MAX_FIELD_BYTES or not joined.isascii():
        return None
    return joined.decode("ascii").strip(" ")


def _next(text: str, at: int) -> int:
    """The start of the next member."""
    at = _spaces(text, at, " \t")
    if not text.startswith(",", at):
        raise _MalformedError
    at = _spaces(text, at + 1, " \t")
    if at == len(text):
        raise _MalformedError
    return at


def _spaces(text: str, at: int, kinds: str) -> int:
    while at < len(text) and text[at] in kinds:
        at += 1
    return at


def _member(text: str, at: int) -> tuple[Item, int]:
    if not text.startswith("(", at):
        return _bare(text, at)
    at += 1
    while True:
        at = _spaces(text, at, " ")
        if text.startswith(")", at):
            return None, at + 1
        _, at = _bare(text, at)
        at = _parameters(text, at)
        if at >= len(text) or text[at] not in " )":
            raise _MalformedError


def _bare(text: str, at: int) -> tuple[Item, int]:
    if match := _INTEGER.match(text, at):
        return int(match[0]), match.end()
    if match := _DECIMAL.match(text, at):
        return float(match[0]), match.end()
    if match := _STRING.match(text, at):
        return _ESCAPED.sub(r"\1", match[1]), match.end()
    if match := _TOKEN.match(text, at):
        return Token(match[0]), match.end()
    if match := _BOOLEAN.match(text, at):
        return match[1] == "1", match.end()
    if match := _OTHER.match(text, at):
        return None, match.end()
    raise _MalformedError


def _parameters(text: str, at: int) -> int:
    while text.startswith(";", at):
        key = _KEY.match(text, _spaces(text, at + 1, " "))
        if key is None:
            raise _MalformedError
        at = key.end()
        if text.startswith("=", at):
            _, at = _bare(text, at + 1)
    return at
