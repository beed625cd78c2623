"""Combination of access paths: the paths of a conjunction or a disjunction, from the paths of its members."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from quaestor.planning.access_entries import MOST_ENTRIES, Access, AnyOf, Entry, Range


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
    """Return the access path of a disjunction, made of each member's best one; [] if a member has none."""
    parts: list[Entry] = []
    for alternatives in members:
        if not alternatives:
            return []
        best = min(alternatives, key=lambda access: access.cost)
        parts.extend(best.members if isinstance(best, AnyOf) else (best,))
    distinct = tuple(dict.fromkeys(parts))
    if len(distinct) == 1:
        return list(distinct)
    return [AnyOf(distinct)] if len(distinct) <= MOST_ENTRIES else []
