"""What this process has registered and may still need, and which of it another response can rely on too.

**Sharing.** A registration says: what this query found has not changed since it was read. So whoever runs the same query and
reads the same state needs none of its own; `at_hand` finds it. The newcomer must not have read an older state than the one that
is registered: everything that this may hold had been reported by a cell before the newcomer's handler began (`since` of the one
is not below `read_at` of the other, nor below its `since`), so the newcomer's read saw it as well. A write after that kills the
registration, whichever of the two results it concerns: a response may die a little too early for it, never too late.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from quaestor.invalidation.matching.leases import Leases
from quaestor.model import Registration, Version

MOST_SHARED: Final = 128
"""Responses that rely on one registration before another is made: so much its death costs at once. While that other one is
being activated, as many again."""


@dataclass(slots=True)
class _Held:
    """as_of: its result holds no write after that.
    expires_at_ms: when the grid forgets it.
    needed_until_ms: what relies on it is gone then, but for `pending` responses that are still being stored.
    rate_hz: of its members, once it is active. sharers: responses beside the first that rely on it.
    noted_ms: when somebody looks whether its time is over.
    """

    query_id: str
    as_of: Version
    expires_at_ms: int
    needed_until_ms: int = 0
    pending: int = 1
    rate_hz: float = 0.0
    sharers: int = 0
    noted_ms: int = 0

    @property
    def until_ms(self) -> int:
        return self.expires_at_ms if self.pending else self.needed_until_ms


class SharedRegistrations:
    """Registrations by id. Every call is O(1) a registration, but for over(). May be called from several threads; at_hand() and
    offer() from one.

    dead: ids of which nothing may be served; tested at every look.
    """

    def __init__(self, dead: Container[str]) -> None:
        self._dead = dead
        self._held: dict[str, _Held] = {}
        self._offered: dict[str, str] = {}
        """By query: the registration that others may rely on."""
        self._ends = Leases()

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._held))

    def open(self, registration: Registration) -> None:
        """One that is about to be registered."""
        expires_at_ms = registration.expires_at_ms
        held = self._held[registration.id] = _Held(
            registration.query_id, max(registration.since, registration.read_at), expires_at_ms
        )
        self._note(registration.id, held)

    def query_of(self, registration_id: str) -> str | None:
        held = self._held.get(registration_id)
        return None if held is None else held.query_id

    def lease(self, registration_id: str, *, until_ms: int) -> None:
        """Of the responses that rely on it one more is known to need it until then; the last word counts while it is alone."""
        held = self._held.get(registration_id)
        if held is None:
            return
        held.pending = max(0, held.pending - 1)
        held.needed_until_ms = max(held.needed_until_ms, until_ms) if held.sharers else until_ms
        if held.until_ms < held.noted_ms:
            self._note(registration_id, held)

    def _note(self, registration_id: str, held: _Held) -> None:
        held.noted_ms = held.until_ms
        self._ends.add(registration_id, held.noted_ms)

    def offer(self, registration_id: str, *, rate_hz: float) -> None:
        """It is active: others may rely on it."""
        held = self._held.get(registration_id)
        if held is None:
            return
        held.rate_hz = rate_hz
        known_id = self._offered.get(held.query_id)
        known = None if known_id is None or known_id in self._dead else self._held.get(known_id)
        # The older of two is of use to more readers.
        if known is None or known.sharers >= MOST_SHARED:
            self._offered[held.query_id] = registration_id
            if registration_id in self._dead:  # meanwhile: those who kill mark first, and forget then
                self._offered.pop(held.query_id, None)

    def at_hand(self, query_id: str, *, since: Version, expires_at_ms: int) -> tuple[str, float] | None:
        """An active registration of this query for one more response, with its members' write rate. It has to be leased.

        since, expires_at_ms: what a registration of the response's own would have.
        """
        registration_id = self._offered.get(query_id)
        if registration_id is None:
            return None
        held = self._held.get(registration_id)
        if held is None or registration_id in self._dead or held.expires_at_ms < expires_at_ms:
            self._offered.pop(query_id, None)
            return None
        if since < held.as_of or held.sharers >= 2 * MOST_SHARED:
            return None
        held.sharers += 1
        if held.sharers == MOST_SHARED:
            return None  # this one makes another; whoever comes meanwhile is not kept waiting
        held.pending += 1
        return registration_id, held.rate_hz

    def take(self, registration_ids: Iterable[str], *, unshared: bool = False) -> dict[str, list[str]]:
        """Forget these, as far as they are known; returns them by query.

        unshared: because one response is gone; those that are alive and that others rely on stay.
        """
        by_query: dict[str, list[str]] = {}
        for registration_id in registration_ids:
            held = self._held.get(registration_id)
            if held is None or (unshared and held.sharers and registration_id not in self._dead):
                continue
            self._held.pop(registration_id, None)
            by_query.setdefault(held.query_id, []).append(registration_id)
            if self._offered.get(held.query_id) == registration_id:
                self._offered.pop(held.query_id, None)
        return by_query

    def withdraw_all(self) -> None:
        """Nobody may rely on any of these who does not already. After they were marked dead."""
        self._offered.clear()

    def over(self, now_ms: int) -> list[str]:
        """Those that nothing needs any more."""
        ended: list[str] = []
        for registration_id in self._ends.over(now_ms):
            held = self._held.get(registration_id)
            if held is None:
                continue
            if held.until_ms < now_ms:
                ended.append(registration_id)
            else:
                self._note(registration_id, held)
        self._ends.compact(self._needed)
        return ended

    def _needed(self, registration_id: str, begins_ms: int) -> bool:
        held = self._held.get(registration_id)
        return held is not None and held.noted_ms >= begins_ms
