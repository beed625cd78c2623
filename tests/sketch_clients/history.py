"""Consistency of a recorded history: for each level the reads that break its promise.

Reads that were passed on without a lifetime have no promise. Their versions count all the same.
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
    return (read for read in world.reads if read.source != "passed")


def staler_than(delta_ms: float) -> Callable[[History], Iterator[Read]]:
    """Reads of what was no longer so delta_ms before they began."""

    def found(world: History) -> Iterator[Read]:
        return (
            dependent
            for dependent in _promised(world)
            if dependent.version < _version_at(world, dependent.resource, dependent.begun_ms - delta_ms)
        )

    return found


def missing_own_writes(world: History) -> Iterator[Read]:
    """Reads that began after the same client's write had ended, and did not show it."""
    for promise in _promised(world):
        for client, resource, ended_ms, version in world.own:
            if (
                (client, resource) == (promise.client, promise.resource)
                and ended_ms < promise.begun_ms
                and promise.version < version
            ):
                yield promise
                break


def going_back(world: History) -> Iterator[Read]:
    """Reads of an older version than an earlier read of the same client had shown."""
    newest: dict[tuple[int, int], list[tuple[float, int]]] = {}
    for read in sorted(world.reads, key=lambda read: read.ended_ms):
        known = newest.setdefault((read.client, read.resource), [])
        if read.source != "passed" and any(ended < read.begun_ms and read.version < shown for ended, shown in known):
            yield read
        if not known or read.version > known[-1][1]:
            known.append((read.ended_ms, read.version))


def missing_causes(world: History) -> Iterator[Read]:
    """Reads that do not show what was written before something that an earlier read of the same client had shown."""
    seen: dict[int, list[tuple[float, float]]] = {}
    for read in sorted(world.reads, key=lambda read: read.ended_ms):
        known = seen.setdefault(read.client, [])
        latest = max((written for ended, written in known if ended < read.begun_ms), default=0.0)
        if read.source != "passed" and read.version < _version_at(world, read.resource, latest):
            yield read
        shown = world.written[read.resource][read.version]
        if not known or shown > known[-1][1]:
            known.append((read.ended_ms, shown))
