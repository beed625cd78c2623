"""Consistency of a recorded history: for each level the reads that break its promise."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

from tests.sketch_clients.simulation import Read, World


def _version_at(world: World, resource: int, at_ms: float) -> int:
    """The version that had been written before a moment."""
    return max(0, bisect_left(world.written[resource], at_ms) - 1)


def staler_than(delta_ms: float) -> Callable[[World], Iterator[Read]]:
    """Reads of what was no longer so delta_ms before they began."""

    def found(world: World) -> Iterator[Read]:
        return (one for one in world.reads if one.version < _version_at(world, one.resource, one.begun_ms - delta_ms))

    return found


def missing_own_writes(world: World) -> Iterator[Read]:
    """Reads that began after the same client's write had ended, and did not show it."""
    for one in world.reads:
        for client, resource, ended_ms, version in world.own:
            if (client, resource) == (one.client, one.resource) and ended_ms < one.begun_ms and one.version < version:
                yield one
                break


def going_back(world: World) -> Iterator[Read]:
    """Reads of an older version than an earlier read of the same client had shown."""
    newest: dict[tuple[int, int], list[tuple[float, int]]] = {}
    for one in sorted(world.reads, key=lambda one: one.ended_ms):
        known = newest.setdefault((one.client, one.resource), [])
        if any(ended < one.begun_ms and one.version < version for ended, version in known):
            yield one
        if not known or one.version > known[-1][1]:
            known.append((one.ended_ms, one.version))


def missing_causes(world: World) -> Iterator[Read]:
    """Reads that do not show what was written before something that an earlier read of the same client had shown."""
    seen: dict[int, list[tuple[float, float]]] = {}
    for one in sorted(world.reads, key=lambda one: one.ended_ms):
        known = seen.setdefault(one.client, [])
        latest = max((written for ended, written in known if ended < one.begun_ms), default=0.0)
        if one.version < _version_at(world, one.resource, latest):
            yield one
        shown = world.written[one.resource][one.version]
        if not known or shown > known[-1][1]:
            known.append((one.ended_ms, shown))
