"""Shared registrations: what this process has registered and may still need, and which of it another response can rely on too.

**Sharing.** A registration says: what this query found has not changed since it was read. So whoever runs the same query,
reads the same state and finds the same needs none of its own; `reuse` finds it. The newcomer must not have read an older state
than the one that is registered: everything that this may hold had been reported by a cell before the newcomer's handler began
(`since` of the one is not below `read_at` of the other, nor below its `since`), so the newcomer's read saw it as well. A write
after that kills the registration, whichever of the two results it concerns: a response may die a little too early for it, never
too late.

**The same members.** One state does not always give one result: which record `find_one` returns without a sort, which of two
equal ones comes last in a window, how many a single batch holds, is the database's own business. Members are what a registration
is judged by, so it guards those alone, and only who has the same ones in the same order may rely on it. A registration without
members (counts, values, groups, results not read to their end) dies with any change of whatever the query concerns: everybody
may rely on that, unless its query is run again then: the whole result is compared, so only who has the same may rely on it.
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
"""Responses that rely on one registration before another is made: so much its death costs at once. While that other one is
being activated, as many again."""

_SPARE_ENDS: Final = 1_000
"""Ends that are kept beside three for each registration: when the grid forgets it, when nothing needs it, one that is over."""
_Members = bytes | None
"""Digest of a result's members in their order, and of all of it, if that is compared when its query is run again; None: its
registration depends on neither."""


def _digest(members: tuple[Any, ...] | None, digest: bytes | None = None) -> _Members:
    if members is None:
        return digest
    return xxh3_128_digest(bson.encode({"": members}, codec_options=OPTIONS)) + (digest or b"")


@dataclass(slots=True)
class _Entry:
    """One registration, and who relies on it.

    members: those that it guards.
    as_of: its result holds no write after that.
    expires_at_ms: when the grid forgets it.
    needed_until_ms: what relies on it is gone then, but for `pending` responses that are still being stored.
    rate_hz: of its members, once it is active.
    sharers: responses beside the first that rely on it.
    noted_ms: when somebody looks whether its time is over.
    renewable: what is registered again when its query has the same result as before; None: it is not.
    round: the latest that the cells were told of.
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
    """Registrations of this process by id. Every call is O(1) a registration, but for expired(). May be called from several
    threads; reuse() and offer() from one.

    dead: ids of which nothing may be served; tested at every look.
    held: those of them that may be renewed, so that whoever relies on them may do so again.
    """

    def __init__(self, dead: Container[str]) -> None:
        self._dead = dead
        self.held: Container[str] = ()
        self._entries: dict[str, _Entry] = {}
        self._offered: dict[tuple[str, _Members], str] = {}
        """By query and members: the registration that others may rely on."""
        self._ends = Leases()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._entries))

    def open(self, registration: Registration) -> None:
        """Add one that is about to be registered."""
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
        """Query id behind a registration; None if it is unknown or gone."""
        entry = self._entries.get(registration_id)
        return None if entry is None else entry.query_id

    def is_current(self, registration_id: str) -> bool:
        """Whether this is known, and of the latest round."""
        entry = self._entries.get(in_round(registration_id, 0))
        return entry is not None and (entry.renewable is None or entry.round == round_of(registration_id))

    def renewable(self, registration_id: str) -> Registration | None:
        """The registration behind this name, if it can be registered again."""
        entry = self._entries.get(registration_id)
        return None if entry is None else entry.renewable

    def next_round(self, registration_id: str, *, since: Version, read_at: Version) -> Registration | None:
        """One more round of a registration, whose result was read again and is the same; None if nothing needs it any more."""
        entry = self._entries.get(registration_id)
        if entry is None or entry.renewable is None:
            return None
        entry.round += 1
        entry.as_of = max(entry.as_of, since, read_at)
        return replace(
            entry.renewable, id=in_round(registration_id, entry.round), since=min(since, read_at), read_at=read_at
        )

    def lease(self, registration_id: str, *, until_ms: int) -> None:
        """Note that of the responses that rely on it one more needs it until then; the last word counts while it is alone."""
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
        """Offer one that is active to others."""
        entry = self._entries.get(registration_id)
        if entry is None:
            return
        entry.rate_hz = rate_hz
        known_id = self._offered.get(entry.offered_as)
        known = None if known_id is None or known_id in self._dead else self._entries.get(known_id)
        # The older of two is of use to more readers.
        if known is None or known.sharers >= MOST_SHARED:
            self._offered[entry.offered_as] = registration_id
            if registration_id in self._dead:  # meanwhile: those who kill mark first, and forget then
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
        """An active registration of this query for one more response, with its members' write rate. It has to be leased.

        members, since, expires_at_ms, digest: what a registration of the response's own would have.

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
            return None  # this one makes another; whoever comes meanwhile is not kept waiting
        entry.pending += 1
        return registration_id, entry.rate_hz

    def remove(self, registration_ids: Iterable[str], *, unshared: bool = False) -> dict[str, list[str]]:
        """Forget these, as far as they are known; returns them by query, as the cells know them.

        unshared: because one response is gone; those that are alive and that others rely on stay.
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
        """Offer none of these any more. Called after they were marked dead."""
        self._offered.clear()

    def expired(self, now_ms: int) -> list[str]:
        """Those that nothing needs any more. O(those)."""
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
