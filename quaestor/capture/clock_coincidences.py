"""Coincidences of a constant with the present time: parts of a moment in any layout, and counts of units since the epoch.

| in a constant | taken for the clock if |
|---|---|
| a run of digits | it is a part of the time, or is made of parts; or, in text, two or more digits within it are a part |
| a word | it names this weekday, this month or this half of the day, in English or in the process's locale |
| digits after a second | they are the fraction of the second |
| a number, or text in a base of 2 to 36 | it is a part, is made of parts of two digits, or counts units since the epoch |

Parts belong to UTC and the process's zone. Parts of another zone count if at least four digits of the constant agree;
dates like 2026-11-22 are left to `clock_values` there.
Units since the epoch: microseconds; any whole number of ms up to 100 s; of tenths of a second up to an hour; of minutes up to two
days. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import Final

from quaestor.capture.clock_parts import SECOND, Part, Table, near_table, near_zones, world_table
from quaestor.capture.constants import Kind

Coincidence = tuple[str, int, int]
"""A hypothesis about a constant: the part, its place in the text, and its value in another base, its zone or its unit's
length."""

_RUNS: Final = re.compile(r"[0-9]+|[^\W\d_]+")
_IN_BASE: Final = re.compile(r"[0-9a-z]+")
_DATE: Final = re.compile(r"[0-9]{4}[-/][0-9]{2}(?:[-/][0-9]{2})?")
_FRACTION: Final = re.compile(r"[^0-9+-]{0,2}([0-9]{1,9})")
_PREFIXES: Final = ("0x", "0b", "0o")
_LONGEST: Final = 5
"""Digits of the longest part."""
_LONGEST_COVERED: Final = 24
_LEAST_IN_BASE: Final = 5
_LONGEST_IN_BASE: Final = 64
_UNPADDED: Final = frozenset({"month", "day", "hour", "hour of twelve", "minute", SECOND})
"""Parts that are found with one digit in a longer run."""
_LEAST_AGREEING: Final = 4
_COMPACT_BASES: Final = frozenset({2, 8, 16, 32, 36})
_WHOLE_MS: Final = 100_000
"""Units up to this may be of any whole number of ms."""
_PLACES: Final = {0: "year", 5: "month", 8: "day", 11: "hour", 14: "minute", 17: SECOND}
"""Parts of a moment by their place in its text."""
_HOURS: Final = frozenset({"hour", "hour of twelve"})
_BESIDE_HOURS: Final = frozenset({"minute", "day", SECOND})
"""Parts that make an hour of another zone likely."""
_SUMMER_S: Final = 3_600
"""Summer time is ahead by this: a constant of one zone is the same coincidence in both halves of the year."""
_MINUTE_MS: Final = 60_000
_LEAST_COUNT: Final = 490_000
"""Fewer units have passed since 1970 only if a unit is longer than an hour, as of November 2025."""
_LEAST_LONG_COUNT: Final = 10_000
_MOST_LENGTHS: Final = 64
_DIGIT_OF: Final = {digit: value for value, digit in enumerate("0123456789abcdefghijklmnopqrstuvwxyz")}


class Coincidences:
    """Search of one constant for the time of one request.

    ends_ms: the end of the unit of each coincidence; an end up to now_ms has passed.
    dropped: a piece of the constant is also in the request, and was left out.
    """

    def __init__(self, text: str, kind: Kind, *, started_ms: int, now_ms: int, asked: Container[str] = ()) -> None:
        self.ends_ms: dict[Coincidence, int] = {}
        self.dropped = False
        self._started_ms, self._now_ms = started_ms, now_ms
        self._near = near_table(started_ms, now_ms)
        self._asked = asked
        self._kind = kind
        self._known_layout = _DATE.fullmatch(text) is not None
        text = text.casefold()
        self._layout(text)
        if kind is Kind.NUMBER:
            self._count(int(text))
        elif kind is Kind.TEXT:
            self._bases(text)

    def _note(self, name: str, place: int, end_ms: int, value: int = 0) -> None:
        key = (name, place, value)
        self.ends_ms[key] = min(end_ms, self.ends_ms.get(key, end_ms))

    def _fits(self, name: str, place: int) -> bool:
        """Whether a part may stand here: the places of a moment's parts are known."""
        return self._kind is not Kind.MOMENT or _PLACES.get(place) == name

    def _asked_for(self, run: str) -> bool:
        known = run in self._asked or run.lstrip("0") in self._asked
        self.dropped |= known
        return known

    def _layout(self, text: str) -> None:
        runs = [(match[0], match.start()) for match in _RUNS.finditer(text)]
        runs = [(run, place) for run, place in runs if not self._asked_for(run)]
        seconds: list[int] = []
        least = _LONGEST if self._kind is Kind.MOMENT else 1
        for run, place in runs:
            for part, at, length in _pieces(run, self._near, covering=self._kind is not Kind.TEXT, least=least):
                if self._fits(part.name, place + at):
                    self._note(part.name, place + at, part.end_ms)
                if part.name == SECOND:
                    seconds.append(place + at + length)
        digits = sum(len(run) for run, _ in runs if run[0].isdecimal())
        if digits >= _LEAST_AGREEING - 1 and not self._known_layout:
            self._elsewhere(runs)
        for end in seconds:
            self._fraction(text, end)

    def _elsewhere(self, runs: list[tuple[str, int]]) -> None:
        """Note parts of other zones of the world, each with at least four digits."""
        pieces: dict[int, list[tuple[Part, int, int]]] = {}
        table = world_table(self._started_ms, self._now_ms)
        for run, place in runs:
            for part, at, length in _pieces(run, table, covering=True, least=2):
                if self._fits(part.name, place + at):
                    pieces.setdefault(part.zone_s, []).append((part, place + at, length))
        seconds = {(SECOND, place, 2) for name, place, _ in self.ends_ms if name == SECOND}
        for zone in pieces.values():
            agreeing = {(part.name, place, max(length, part.width)) for part, place, length in zone} | seconds
            for part, place, _ in zone:
                if _agree(part, place, agreeing):
                    for standard_s in (part.zone_s, part.zone_s - _SUMMER_S):
                        self._note(part.name, place, part.end_ms, standard_s)

    def _fraction(self, text: str, end: int) -> None:
        """Note digits after a second, with a separator or without."""
        match = _FRACTION.match(text, end)
        if match is None:
            return
        digits = match[1]
        span_ms = 10 ** max(0, 3 - len(digits))
        least = int(digits[:3].ljust(3, "0"))
        took_ms = self._now_ms - self._started_ms
        as_fraction = (least - self._started_ms) % 1000 <= took_ms or (self._started_ms - least) % 1000 < span_ms
        as_number = (int(digits[:3]) - self._started_ms) % 1000 <= took_ms
        if as_fraction or as_number:
            self._note("fraction", match.start(1), self._started_ms)

    def _bases(self, text: str) -> None:
        """Note numbers in other bases. Of several pieces only long ones are read in other bases: short ones have many
        readings."""
        for match in _IN_BASE.finditer(text):
            token, alone = match[0], match[0] == text
            if not (alone or len(token) >= _LEAST_IN_BASE) or len(token) > _LONGEST_IN_BASE or self._asked_for(token):
                continue
            token = token[2:] if token.startswith(_PREFIXES) and len(token) > 2 else token
            least = max(_DIGIT_OF[digit] for digit in set(token)) + 1
            for base in range(max(2, least), 37):
                value = int(token, base)
                if base == 10 or value >= _LEAST_COUNT:
                    self._count(value, match.start())
                if base != 10 and alone:
                    self._in_base(value, base, match.start())

    def _in_base(self, value: int, base: int, place: int) -> None:
        digits = str(value)
        for part in self._near.get(digits, ()):
            self._note(part.name, place, part.end_ms, value)
        if base in _COMPACT_BASES and value >= 100:
            digits = digits.zfill(len(digits) + len(digits) % 2)
            for part, at, _ in _pieces(digits, self._near, covering=True, least=2):
                self._note(part.name, place + at, part.end_ms, value)

    def _count(self, value: int, place: int = 0) -> None:
        """Note counts of units since the epoch, in UTC or in the process's zone."""
        for zone_s in near_zones():
            started_ms, now_ms = self._started_ms + zone_s * 1000, self._now_ms + zone_s * 1000
            if started_ms * 1000 <= value < (now_ms + 1) * 1000 or started_ms <= value // 1_000_000 <= now_ms:
                self._note("count", place, self._started_ms)
            if value >= _LEAST_LONG_COUNT:
                for unit_ms in _units(value, started_ms, now_ms):
                    self._note("count", place, (value + 1) * unit_ms - zone_s * 1000, unit_ms)


def _agree(part: Part, place: int, zone: set[tuple[str, int, int]]) -> bool:
    """Whether at least four digits fit the part's zone: its own and others beside it."""
    others = [
        (start, width)
        for name, start, width in zone
        if start != place and (part.name not in _HOURS or name in _BESIDE_HOURS)
    ]
    return part.width + sum(dict(others).values()) >= _LEAST_AGREEING


def _units(count: int, started_ms: int, now_ms: int) -> Iterator[int]:
    """Iterate over lengths in ms of units of which so many had passed at some moment of the request."""
    least, most = started_ms // (count + 1) + 1, now_ms // count
    if count < _LEAST_COUNT:
        yield from range(-(-least // _MINUTE_MS) * _MINUTE_MS, most + 1, _MINUTE_MS)
        return
    step = 1 if most <= _WHOLE_MS else 100
    for number, unit_ms in enumerate(range(-(-least // step) * step, most + 1, step)):
        if number < _MOST_LENGTHS:
            yield unit_ms


def _pieces(run: str, table: Table, *, covering: bool = False, least: int = 1) -> Iterator[tuple[Part, int, int]]:
    """Iterate over parts within a run, with places and lengths: the whole run, parts that make it up together, and inner parts.

    covering: leave out inner parts.
    least: digits of the shortest part of several.
    """
    size = len(run)
    for whole in {run, run.lstrip("0") or "0"} if run[0].isdecimal() else {run}:
        yield from ((part, 0, size) for part in table.get(whole, ()) if part.width > 1 or whole == run)
    if size == 1 or not run[0].isdecimal():
        return
    matches = [
        (at, length)
        for at in range(size)
        for length in range(least, min(_LONGEST, size - at, size - 1) + 1)
        if _stands_beside_others(run[at : at + length], table)
    ]
    covered = _covered(matches, size) if size <= _LONGEST_COVERED else frozenset()
    for at, length in matches:
        if (at, length) in covered or (length > 1 and not covering):
            parts = table[run[at : at + length]]
            yield from ((part, at, length) for part in parts if length > 1 or part.name in _UNPADDED)


def _stands_beside_others(digits: str, table: Table) -> bool:
    """Whether these digits of a longer run may be a part."""
    parts = table.get(digits, ())
    return bool(parts) and (len(digits) > 1 or any(part.name in _UNPADDED for part in parts))


def _covered(matches: list[tuple[int, int]], size: int) -> frozenset[tuple[int, int]]:
    """Return the matches that belong to a row of matches from the beginning to the end."""
    ahead, behind = {0}, {size}
    for at, length in matches:
        if at in ahead:
            ahead.add(at + length)
    for at, length in reversed(matches):
        if at + length in behind:
            behind.add(at)
    return frozenset((at, length) for at, length in matches if at in ahead and at + length in behind)
