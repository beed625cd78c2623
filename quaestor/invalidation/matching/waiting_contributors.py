"""Contributors of registrations, kept until every write up to their version has been matched without them."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from quaestor.invalidation.matching.contributors import Inputs, Page, Shown, Supplied, Unplaced, supplied
from quaestor.invalidation.matching.entities import LiveRegistration
from quaestor.invalidation.matching.record_hashes import RecordHashes
from quaestor.model import GridShape, Registration, Version
from quaestor.planning.plan import plan_query


class WaitingContributors:
    """Contributors that arrived before the writes that they contain. Not thread-safe."""

    def __init__(self, hashes: RecordHashes, shape: GridShape) -> None:
        self._hashes = hashes
        self._cells = shape.write_partitions
        self._by_version: list[tuple[Version, str]] = []
        self._known: dict[str, Supplied] = {}

    def __len__(self) -> int:
        return len(self._by_version)

    def add(self, live: LiveRegistration, registration: Registration, *, floor: Version | None) -> Version | None:
        """Keep the contributors of a live registration; return the version from which they judge it, or None: never.

        floor: the version above which every write is retained.
        """
        known = registration.contributors
        if known is None or live.kept is not None or live.id in self._known:
            return None
        if floor is None or known.version < max(floor, registration.read_at):
            return None
        query = plan_query(registration.query).query
        hashes = self._hashes.contributing(registration)
        # After a takeover the moves of records in between, which left the result unchanged, are unknown.
        follows = known.version >= live.since
        supply = supplied(
            known, live.query.rules, query, hashes, cells=self._cells, follows=follows, members=live.members
        )
        if supply is None:
            return None
        if not follows and supply.kept is not None and not isinstance(supply.kept, Page | Inputs | Shown | Unplaced):
            return None
        self._known[live.id] = supply
        heappush(self._by_version, (known.version, live.id))
        return known.version

    def reached(self, version: Version) -> Iterator[tuple[str, Version, Supplied]]:
        """Take away the contributors up to this version: ids of registrations, each with its version and its contributors."""
        while self._by_version and self._by_version[0][0] <= version:
            at, registration_id = heappop(self._by_version)
            yield registration_id, at, self._known.pop(registration_id)
