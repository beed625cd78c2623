"""Shared registrations: registrations that this process may still need, and the search for one that a further response can share.

**Sharing.** A registration states that the result of a query has not changed since it was read. A response that runs the
same query, reads the same state and finds the same result therefore needs no registration of its own; `reuse` finds the
existing one. The new response must not have read an older state than the registered one. Before its handler began, a cell
must have reported everything that the registered state may hold. (Its `since` is then not below `read_at` of the other, nor
below its `since`.) Its read then saw that state as well. A later write ends the registration, whichever of the two results
it concerns. A response may then die a little too early, but never too late.

**The same members.** One state does not always give one result. The database decides freely which record `find_one` returns
without a sort, and which of two equal records comes last in a window; also how many records a single batch holds. A
registration is judged by its members and guards only those. Only a response with the same members in the same order may
share it. A registration without members (counts, values, groups, results not read to their end) dies with any change of a
record that the query concerns. Every response may share it, unless its query is rechecked. A recheck compares the whole
result, so only a response with the same result may share it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import bson
from xxhash import xxh3_128_digest

from quaestor.invalidation.matching.leases import Leases
from quaestor.invalidation.registry.registration_ids import in_round, round_of
from quaestor.model import Registration, Version
from quaestor.query.encoding import OPTIONS

MOST_SHARED: Final = 128
"""Responses that share one registration before another is made: the number that its death costs at once. As many again may share
it while the other one is being activated."""

_SPARE_ENDS: Final = 1_000
"""Ends kept beside three for each registration: when the grid forgets it, when no response needs it, one that is over."""
_Members = bytes | None
"""Digest of a result's members in their order, and of the whole result, if a recheck compares it; None: its registration
depends on neither."""


def _digest(members: tuple[Any, ...] | None, digest: bytes | None = None) -> _Members:
    if members is None:
        return digest
    return xxh3_128_digest(bson.encode({"": members}, codec_options=OPTIONS)) + (digest or b"")


@dataclass(slots=True)
class _Entry:
    """Registration, and the responses that rely on it.

    members: digest of the members that it guards.
    as_of: its result holds no write after that version.
    expires_at_ms: when the grid forgets it.
    needed_until_ms: when its responses are gone, except for `pending` ones, which are still being stored.
    rate_hz: write rate of its members, once it is active.
    sharers: responses beside the first that rely on it.
    noted_ms: next check whether its time is over.
    renewable: registration to repeat when its query has the same result as before; None: it cannot be renewed.
    round: latest round sent to the cells.
    """

    query_id: str
    members: _Members
    as_of: Version
    expires_at_ms: int
    needed_until_ms: int = 0
    pending: int = 1
    rate_hz: float = 0.0
    sharers: int = 0
    noted_ms: int = 0
    renewable: Registration | None = None
    round: int = 0

    @property
    def until_ms(self) -> int:
        return self.expires_at_ms if self.pending else self.needed_until_ms

    @property
    def offered_as(self) -> tuple[str, _Members]:
        return self.query_id, self.members


class SharedRegistrations:
    """Registrations of this process by id. Every call is O(1) a registration, except expired().

    Safe from several threads; reuse() and offer() from one.

    dead: ids of dead registrations; tested at every look-up.
    held: ids among them that may be renewed, and relied on again.
    """

    def __init__(self, dead: Container[str]) -> None:
        self._dead = dead
        self.held: Container[str] = ()
        self._entries: dict[str, _Entry] = {}
        self._offered: dict[tuple[str, _Members], str] = {}
        """Registration to share, by query and members."""
        self._ends = Leases()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._entries))

    def open(self, registration: Registration) -> None:
        """Add a registration that is about to be sent."""
        expires_at_ms = registration.expires_at_ms
        entry = self._entries[registration.id] = _Entry(
            registration.query_id,
            _digest(registration.members, registration.digest),
            max(registration.since, registration.read_at),
            expires_at_ms,
            renewable=None if round_of(registration.id) is None else registration,
        )
        self._note(registration.id, entry)

    def query_of(self, registration_id: str) -> str | None:
        """Return the query id behind a registration; None if it is unknown or gone."""
        entry = self._entries.get(registration_id)
        return None if entry is None else entry.query_id

    def is_current(self, registration_id: str) -> bool:
        """Whether this registration is known, and in its latest round."""
        entry = self._entries.get(in_round(registration_id, 0))
        return entry is not None and (entry.renewable is None or entry.round == round_of(registration_id))

    def renewable(self, registration_id: str) -> Registration | None:
        """Return the registration behind this name, if it is renewable."""
        entry = self._entries.get(registration_id)
        return None if entry is None else entry.renewable

    def next_round(self, registration_id: str, *, since: Version, read_at: Version) -> Registration | None:
        """Return the next round of a registration with an unchanged result; None if no response needs it any more."""
        entry = self._entries.get(registration_id)
        if entry is None or entry.renewable is None:
            return None
        entry.round += 1
        entry.as_of = max(entry.as_of, since, read_at)
        return replace(
            entry.renewable, id=in_round(registration_id, entry.round), since=min(since, read_at), read_at=read_at
        )

    def lease(self, registration_id: str, *, until_ms: int) -> None:
        """Note until when one of its responses needs a registration; without sharers the last call counts."""
        entry = self._entries.get(registration_id)
        if entry is None:
            return
        entry.pending = max(0, entry.pending - 1)
        entry.needed_until_ms = max(entry.needed_until_ms, until_ms) if entry.sharers else until_ms
        if entry.until_ms < entry.noted_ms:
            self._note(registration_id, entry)

    def _note(self, registration_id: str, entry: _Entry) -> None:
        entry.noted_ms = entry.until_ms
        self._ends.add(registration_id, entry.noted_ms)

    def offer(self, registration_id: str, *, rate_hz: float) -> None:
        """Offer an active registration for sharing."""
        entry = self._entries.get(registration_id)
        if entry is None:
            return
        entry.rate_hz = rate_hz
        known_id = self._offered.get(entry.offered_as)
        known = None if known_id is None or known_id in self._dead else self._entries.get(known_id)
        # The older of two serves more readers.
        if known is None or known.sharers >= MOST_SHARED:
            self._offered[entry.offered_as] = registration_id
            if registration_id in self._dead:  # died meanwhile: a death is marked first and forgotten afterwards
                self._offered.pop(entry.offered_as, None)

    def reuse(
        self,
        query_id: str,
        *,
        members: tuple[Any, ...] | None,
        since: Version,
        expires_at_ms: int,
        digest: bytes | None = None,
    ) -> tuple[str, float] | None:
        """Return an active registration of this query to share, with its members' write rate. The caller must lease it.

        members, since, expires_at_ms, digest: fields that an own registration of the response would have.

        O(members).
        """
        offered_as = (query_id, _digest(members, digest))
        if offered_as not in self._offered:
            offered_as = (query_id, None)
        registration_id = self._offered.get(offered_as)
        if registration_id is None:
            return None
        entry = self._entries.get(registration_id)
        if entry is None or registration_id in self._dead or entry.expires_at_ms < expires_at_ms:
            self._offered.pop(offered_as, None)
            return None
        if since < entry.as_of or entry.sharers >= 2 * MOST_SHARED:
            return None
        entry.sharers += 1
        if entry.sharers == MOST_SHARED:
            return None  # this response makes another; responses that come meanwhile need not wait
        entry.pending += 1
        return registration_id, entry.rate_hz

    def remove(self, registration_ids: Iterable[str], *, unshared: bool = False) -> dict[str, list[str]]:
        """Forget the known ones of these registrations; return them by query, by the names that cells know.

        unshared: one response is gone; living registrations that others share stay.
        """
        by_query: dict[str, list[str]] = {}
        for registration_id in registration_ids:
            entry = self._entries.get(registration_id)
            alive = registration_id not in self._dead or registration_id in self.held
            if entry is None or (unshared and entry.sharers and alive):
                continue
            self._entries.pop(registration_id, None)
            by_query.setdefault(entry.query_id, []).append(in_round(registration_id, entry.round))
            if self._offered.get(entry.offered_as) == registration_id:
                self._offered.pop(entry.offered_as, None)
        return by_query

    def withdraw_all(self) -> None:
        """Withdraw every offer. Called after all registrations were marked dead."""
        self._offered.clear()

    def expired(self, now_ms: int) -> list[str]:
        """Return the registrations that no response needs any more. O(returned registrations)."""
        ended: list[str] = []
        for registration_id in self._ends.over(now_ms):
            entry = self._entries.get(registration_id)
            if entry is None:
                continue
            if entry.until_ms < now_ms:
                ended.append(registration_id)
            else:
                self._note(registration_id, entry)
        self._ends.compact(self._needed, most=3 * len(self._entries) + _SPARE_ENDS)
        return ended

    def _needed(self, registration_id: str, begins_ms: int) -> bool:
        entry = self._entries.get(registration_id)
        return entry is not None and entry.noted_ms >= begins_ms
