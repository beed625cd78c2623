"""Consistency of a recorded history: for each level the reads that break its promise.

Reads that were passed on without a lifetime are promised nothing. What they have shown counts all the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from tests.sketch_clients.simulation import Read


class History(Protocol):
    """What was done.

    written: of each resource, when its versions were written.
    reads: of all clients.
    own: writes: client, resource, when it ended, version.
    """

    written: Mapping[int, Sequence[float]]
    reads: Sequence[Read]
    own: Sequence[tuple[int, int, float, int]]


def _version_at(world: History, resource: int, at_ms: float) -> int:
    """The version that had been written before a moment."""
    return max(0, bisect_left(world.written[resource], at_ms) - 1)


def _promised(world: History) -> Iterator[Read]:
    return (one for one in world.reads if one.source != "passed")


def staler_than(delta_ms: float) -> Callable[[History], Iterator[Read]]:
    """Reads of what was no longer so delta_ms before they began."""

    def found(world: History) -> Iterator[Read]:
        return (
            one for one in _promised(world) if one.version < _version_at(world, one.resource, one.begun_ms - delta_ms)
        )

    return found


def missing_own_writes(world: History) -> Iterator[Read]:
    """Reads that began after the same client's write had ended, and did not show it."""
    for one in _promised(world):
        for client, resource, ended_ms, version in world.own:
            if (client, resource) == (one.client, one.resource) and ended_ms < one.begun_ms and one.version < version:
                yield one
                break


def going_back(world: History) -> Iterator[Read]:
    """Reads of an older version than an earlier read of the same client had shown."""
    newest: dict[tuple[int, int], list[tuple[float, int]]] = {}
    for one in sorted(world.reads, key=lambda one: one.ended_ms):
        known = newest.setdefault((one.client, one.resource), [])
        if one.source != "passed" and any(ended < one.begun_ms and one.version < shown for ended, shown in known):
            yield one
        if not known or one.version > known[-1][1]:
            known.append((one.ended_ms, one.version))


def missing_causes(world: History) -> Iterator[Read]:
    """Reads that do not show what was written before something that an earlier read of the same client had shown."""
    seen: dict[int, list[tuple[float, float]]] = {}
    for one in sorted(world.reads, key=lambda one: one.ended_ms):
        known = seen.setdefault(one.client, [])
        latest = max((written for ended, written in known if ended < one.begun_ms), default=0.0)
        if one.source != "passed" and one.version < _version_at(world, one.resource, latest):
            yield one
        shown = world.written[one.resource][one.version]
        if not known or shown > known[-1][1]:
            known.append((one.ended_ms, shown))
