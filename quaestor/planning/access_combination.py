"""Combination of access paths: the paths of a conjunction or a disjunction, from the paths of its members."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from quaestor.planning.access_entries import MOST_ENTRIES, Access, AnyOf, Entry, Range, eligible, entries_of, names_ids

_MOST_CHOICES: Final = 64
"""A disjunction with more members than this has the best path of each, without alternatives: a choice costs time and memory."""


def all_of(members: Iterable[list[Access]]) -> list[Access]:
    """Return the access paths of a conjunction: those of each member, with ranges of one path merged."""
    accesses: list[Access] = []
    ranges: dict[tuple[str, int], Range] = {}
    for access in chain.from_iterable(members):
        if isinstance(access, Range):
            axis = (access.path, access.bracket)
            ranges[axis] = _narrowed(ranges[axis], access) if axis in ranges else access
        else:
            accesses.append(access)
    return [*accesses, *ranges.values()]


def _narrowed(a: Range, b: Range) -> Range:
    """Return the intersection of two ranges. Different elements of an array may satisfy the two; the index spans arrays."""
    low = a.low if b.low is None else b.low if a.low is None else max(a.low, b.low)
    high = a.high if b.high is None else b.high if a.high is None else min(a.high, b.high)
    return Range(a.path, a.bracket, low, high)


def any_of(members: Iterable[list[Access]]) -> list[Access]:
    """Return the access path of a disjunction, made of the alternatives of each member; [] if a member has none."""
    choices: list[tuple[Access, ...]] = []
    for alternatives in members:
        if not alternatives:
            return []
        choices.append(tuple(eligible(sorted(alternatives, key=lambda access: access.cost))))
    distinct = distinct_entries(choice[0] for choice in choices)
    if len(distinct) > MOST_ENTRIES:
        return []
    several = len(choices) <= _MOST_CHOICES and any(map(_is_open, choices))
    if len(distinct) == 1 and (not several or names_ids(distinct[0])):
        return list(distinct)
    return [AnyOf(distinct, tuple(dict.fromkeys(choices)) if several else ())]


def distinct_entries(accesses: Iterable[Access]) -> tuple[Entry, ...]:
    """Return the entries of all these access paths, each once."""
    return tuple(dict.fromkeys(chain.from_iterable(map(entries_of, accesses))))


def _is_open(choice: Sequence[Access]) -> bool:
    """Whether a branch may be kept under other entries than its best ones."""
    return len(choice) > 1 or (isinstance(choice[0], AnyOf) and bool(choice[0].choices))
