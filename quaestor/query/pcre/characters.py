"""Sets of characters as sorted ranges of code points, and PCRE's named ones (ASCII only, as in mongod)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

Ranges = tuple[tuple[int, int], ...]

LAST: Final = 0x10FFFF


def union(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the same characters with overlapping and adjacent ranges joined."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return tuple(joined)


def complement(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return every other character."""
    others: list[tuple[int, int]] = []
    start = 0
    for low, high in union(ranges):
        if low > start:
            others.append((start, low - 1))
        start = high + 1
    if start <= LAST:
        others.append((start, LAST))
    return tuple(others)


def _of(characters: str) -> Ranges:
    return union((ord(character), ord(character)) for character in characters)


_UPPER: Final = ((0x41, 0x5A),)
_LOWER: Final = ((0x61, 0x7A),)
_DIGIT: Final = ((0x30, 0x39),)
_ALPHA: Final = _UPPER + _LOWER
_WORD: Final = union((*_ALPHA, *_DIGIT, (0x5F, 0x5F)))
_SPACE: Final = ((0x09, 0x0D), (0x20, 0x20))
_HORIZONTAL: Final = (
    *((code, code) for code in (0x09, 0x20, 0xA0, 0x1680, 0x180E, 0x202F, 0x205F, 0x3000)),
    (0x2000, 0x200A),
)
_VERTICAL: Final = ((0x0A, 0x0D), (0x85, 0x85), (0x2028, 0x2029))

ESCAPES: Final[dict[str, Ranges]] = {
    "d": _DIGIT,
    "D": complement(_DIGIT),
    "w": _WORD,
    "W": complement(_WORD),
    "s": _SPACE,
    "S": complement(_SPACE),
    "h": _HORIZONTAL,
    "H": complement(_HORIZONTAL),
    "v": _VERTICAL,
    "V": complement(_VERTICAL),
}
"""Escapes that stand for a set, inside and outside brackets."""

POSIX: Final[dict[str, Ranges]] = {
    "alpha": union(_ALPHA),
    "lower": _LOWER,
    "upper": _UPPER,
    "alnum": union((*_ALPHA, *_DIGIT)),
    "ascii": ((0x00, 0x7F),),
    "blank": _of(" \t"),
    "cntrl": ((0x00, 0x1F), (0x7F, 0x7F)),
    "digit": _DIGIT,
    "graph": ((0x21, 0x7E),),
    "print": ((0x20, 0x7E),),
    "punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "space": _SPACE,
    "word": _WORD,
    "xdigit": union((*_DIGIT, (0x41, 0x46), (0x61, 0x66))),
}

_UNDERSCORE: Final = ((0x5F, 0x5F),)
_UNICODE_SPACE: Final = union((*_HORIZONTAL, *_VERTICAL))
UNICODE_WORD: Final = "[\\p{L}\\p{N}_]"
UNICODE_ESCAPES: Final[dict[str, tuple[Ranges, tuple[str, ...]]]] = {
    "d": ((), ("\\p{Nd}",)),
    "D": ((), ("\\P{Nd}",)),
    "w": (_UNDERSCORE, ("\\p{L}", "\\p{N}")),
    "s": (_UNICODE_SPACE, ("\\p{Z}",)),
}
"""The same escapes under (*UCP): ranges and properties."""
UNICODE_POSIX: Final[dict[str, tuple[Ranges, tuple[str, ...]]]] = {
    "alpha": ((), ("\\p{L}",)),
    "lower": ((), ("\\p{Ll}",)),
    "upper": ((), ("\\p{Lu}",)),
    "alnum": ((), ("\\p{L}", "\\p{N}")),
    "space": (_UNICODE_SPACE, ("\\p{Z}",)),
    "blank": (_HORIZONTAL, ()),
    "digit": ((), ("\\p{Nd}",)),
    "word": (_UNDERSCORE, ("\\p{L}", "\\p{N}")),
}

CONTROL: Final = {"a": 0x07, "e": 0x1B, "f": 0x0C, "n": 0x0A, "r": 0x0D, "t": 0x09}
"""Escapes that stand for one character."""


def escaped(code: int) -> str:
    """Return a character in a form that both engines take literally, inside and outside brackets."""
    if chr(code).isascii() and chr(code).isalnum():
        return chr(code)
    if code < 0x80:
        return f"\\x{code:02x}"
    return chr(code)


_PROPERTY_WORK: Final = 400
_WIDE_WORK: Final = 4


def set_work(text: str) -> int:
    """Return the steps that a bracket expression, or `\\p{...}`, costs an engine: few for each range, many for a property.

    text: from `bracketed`.
    """
    properties = text.count("\\p{") + text.count("\\P{")
    return 1 + len(text) // 4 + _PROPERTY_WORK * properties + (_WIDE_WORK if text[:2] == "[^" else 0)


def bracketed(ranges: Ranges, properties: Iterable[str] = (), *, negated: bool = False) -> str:
    """Return a bracket expression for both engines. properties: escapes such as `\\p{Lu}` to put beside the ranges."""
    members = [escaped(low) if low == high else f"{escaped(low)}-{escaped(high)}" for low, high in ranges]
    members.extend(properties)
    if not members:
        return bracketed(((0, LAST),), negated=not negated)
    return f"[{'^' if negated else ''}{''.join(members)}]"
