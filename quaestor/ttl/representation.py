"""Representation of a list: kept whole, or as ids from which it is put together, whichever costs less. Pure.

Kept whole ("object list"), it is a hit that costs next to nothing, and every change of a member makes it a miss. Kept as ids, a
change of a member that leaves it where it stands costs one record; in return every hit is put together.
Source: Gessert et al., "Quaestor" (PVLDB 2017), and Wingerath's thesis, section 5.1, on object lists and id lists. There the
client puts the list together, so an id list costs a further round trip; here the server does, so it costs processor time.
"""

from __future__ import annotations

from dataclasses import dataclass

from quaestor.policy import Representation

STEADINESS = 0.8
"""The other representation must cost less than this share of the present one before it is taken: no flapping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load of one query.

    length: records in its result.
    reads_hz: reads a second.
    changes_hz: writes to members that leave them where they are.
    moves_hz: writes by which a record comes, goes or changes places.
    """

    length: float
    reads_hz: float
    changes_hz: float
    moves_hz: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Costs in microseconds of the server's time; measured on one core, only their ratios matter.

    hit: of a whole list out of memory.
    assembled_hit, member: of a list put together, and of each of its members.
    query: reading a list from the database, registering it.
    record: reading one record as a part of that.
    refresh: reading single records again.
    """

    hit: float = 10
    assembled_hit: float = 270
    member: float = 0.1
    query: float = 2_000
    record: float = 32
    refresh: float = 2_500


def objects_cost(load: Load, costs: Costs) -> float:
    """Cost of keeping the list whole, in microseconds per second.

    Every change makes at most one miss, and so does at most every read.
    """
    misses_hz = min(load.reads_hz, load.changes_hz + load.moves_hz)
    return load.reads_hz * costs.hit + misses_hz * (costs.query + load.length * costs.record)


def ids_cost(load: Load, costs: Costs) -> float:
    """Cost of keeping the list as ids, in microseconds per second."""
    misses_hz = min(load.reads_hz, load.moves_hz)
    refreshes_hz = min(load.reads_hz, load.changes_hz)
    hits = load.reads_hz * (costs.assembled_hit + load.length * costs.member)
    return hits + misses_hz * (costs.query + load.length * costs.record) + refreshes_hz * (costs.refresh + costs.record)


def choose(load: Load, present: Representation, costs: Costs | None = None) -> Representation:
    """Representation to take: the cheaper one, if it is clearly cheaper than `present`. Without any write that is OBJECTS."""
    costs = costs or Costs()
    whole, ids = objects_cost(load, costs), ids_cost(load, costs)
    if present is Representation.IDS:
        return Representation.OBJECTS if whole < ids * STEADINESS else Representation.IDS
    return Representation.IDS if ids < whole * STEADINESS else Representation.OBJECTS
