"""Representation of a list: kept whole, as ids from which it is put together, or maintained; whichever costs less. Pure.

Kept whole ("object list"), it is a hit that costs next to nothing, and every change of a member makes it a miss. Kept as ids, a
change of a member that leaves it where it stands costs one record, none if another list has read it meanwhile; in return every
hit is put together. Maintained ("update in place"), it is kept whole and made anew from the result that the grid keeps up to
date: no change makes a query, but each change costs work, also without requests. The costs are derived in docs/rest.md.

Sources: Gessert et al., "Quaestor" (PVLDB 2017), and Wingerath's thesis, section 5.1, on object lists and id lists. There the
client puts the list together, so an id list costs a further round trip; here the server does, so it costs processor time.
Invalidate or update by cost: Mao et al., "Revisiting Cache Freshness for Emerging Real-Time Applications" (HotNets 2024).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from quaestor.policy import Representation

STEADINESS = 0.8
"""Another representation must cost less than this share of the present one before it is taken: no flapping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load of one query.

    length: records in its result.
    reads_hz: reads a second.
    changes_hz: writes to members that leave them where they are.
    moves_hz: writes by which a record comes, goes or changes places.
    record_bytes: mean size of a record.
    member_hits: share (0..1) of the changed members that are here again when this list is asked for, because others show
        them too.
    """

    length: float
    reads_hz: float
    changes_hz: float
    moves_hz: float
    record_bytes: float = 0.0
    member_hits: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Costs in microseconds of the server's time; measured on one core, only their ratios matter.

    hit: of a whole list out of memory.
    assembled_hit, member: of a list put together, and of each of its members.
    query: reading a list from the database, registering it.
    record, byte: reading one record as a part of that, and each byte of it.
    refresh: reading single records again.
    maintenance: one change of a maintained result: matched, sorted in, sent, applied.
    refill, row: making a list anew from its maintained result, registering it; each record of it.
    """

    hit: float = 10
    assembled_hit: float = 270
    member: float = 0.1
    query: float = 2_000
    record: float = 32
    byte: float = 0.01
    refresh: float = 2_500
    maintenance: float = 400
    refill: float = 1_500
    row: float = 10

    def record_of(self, load: Load) -> float:
        """Cost of reading one of its records from the database."""
        return self.record + self.byte * load.record_bytes


def objects_cost(load: Load, costs: Costs) -> float:
    """Cost of keeping the list whole, in microseconds per second.

    Every change makes at most one miss, and so does at most every read.
    """
    misses_hz = min(load.reads_hz, load.changes_hz + load.moves_hz)
    return load.reads_hz * costs.hit + misses_hz * (costs.query + load.length * costs.record_of(load))


def ids_cost(load: Load, costs: Costs) -> float:
    """Cost of keeping the list as ids, in microseconds per second."""
    misses_hz = min(load.reads_hz, load.moves_hz)
    refreshes_hz = min(load.reads_hz, load.changes_hz) * (1 - load.member_hits)
    hits = load.reads_hz * (costs.assembled_hit + load.length * costs.member)
    queries = misses_hz * (costs.query + load.length * costs.record_of(load))
    return hits + queries + refreshes_hz * (costs.refresh + costs.record_of(load))


def maintained_cost(load: Load, costs: Costs) -> float:
    """Cost of maintaining the list, in microseconds per second: each write counts, whether or not anybody reads."""
    writes_hz = load.changes_hz + load.moves_hz
    refills_hz = min(load.reads_hz, writes_hz)
    row = costs.row + costs.byte * load.record_bytes
    return load.reads_hz * costs.hit + writes_hz * costs.maintenance + refills_hz * (costs.refill + load.length * row)


COSTS_OF: Final[Mapping[Representation, Callable[[Load, Costs], float]]] = {
    Representation.OBJECTS: objects_cost,
    Representation.IDS: ids_cost,
    Representation.MAINTAINED: maintained_cost,
}


def choose(
    load: Load, present: Representation, costs: Costs | None = None, *, maintainable: bool = False
) -> Representation:
    """Representation to take: the cheapest one, if it is clearly cheaper than `present`. Without any write that is OBJECTS.

    maintainable: whether MAINTAINED is among them.
    """
    allowed = [
        representation for representation in COSTS_OF if maintainable or representation is not Representation.MAINTAINED
    ]
    costs_of = {representation: COSTS_OF[representation](load, costs or Costs()) for representation in allowed}
    cheapest = min(allowed, key=costs_of.__getitem__)
    if present not in costs_of or costs_of[cheapest] < costs_of[present] * STEADINESS:
        return cheapest
    return present
