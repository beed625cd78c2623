"""Coalescing: of the requests for one key, one runs the handler and the others wait for what it stores.

In this process a flight is followed by whoever comes later, and lands with the entry that was found or stored: its followers
judge that for themselves, whether or not memory had room for it. Across processes its leader takes a lease in the shared store
first; who does not get it waits until the entry appears there, or until the lease is free. A leader lands exactly once,
whatever becomes of it (stored, refused, left), and a lease that nobody renews expires, so nobody waits for ever. A key whose
answer could not be stored is remembered for a moment: its next requests do not queue up behind each other for nothing.

Nobody's fate hangs on another's client: a follower that goes away takes nothing with it, and when a leader goes away one of
its followers leads.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import Enum, auto
from itertools import count
from typing import Any

from quaestor.errors import StoreError
from quaestor.model import CachedResponse
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import Leases, Turn
from quaestor.runtime.supervision.supervisor import Errands, Supervisor
from quaestor.store.memory import Resident

UNCOALESCED_MS = 5_000
"""How long a key whose answer could not be stored is not coalesced."""
STORE_BACKOFF_MS = 1_000
"""How long a store that did not answer is not asked for the same key again: the next requests need not wait for it too."""
MOST_REMEMBERED = 4096
LEASE_MS = 3_000
"""After so long without a sign of life a process that fetches something counts as dead. It renews three times as often."""
LEASE_WAIT_S = 8.0
"""How long another process's fetch is waited for before this one runs its own handler."""
_STEP_AWAY_MS = 200
"""How long a lease says that an answer was refused this once: every process that waits has heard of it by then."""
_FIRST_POLL_S = 0.002
_LAST_POLL_S = 0.05
_POLL_GROWTH = 1.5


class Landing(Enum):
    """The end of a flight."""

    STORED = auto()
    REFUSED = auto()
    """The answer exists, but must not be given to anybody else."""
    LEFT = auto()
    """No answer: the handler raised, or its client went away."""


class Flight:
    """One handler run that others may wait for. Its leader calls land(); calling it again changes nothing.

    waited: whether another process's fetch was waited for.
    followed: whether somebody has waited for it.
    entry: what it has landed with: the one that was found or stored, for its followers.
    """

    def __init__(self, coalescing: RequestCoalescing, key: str) -> None:
        self._coalescing = coalescing
        self._key = key
        self._landed: asyncio.Future[Landing] = asyncio.get_running_loop().create_future()
        self._holder = ""
        self._renewal: asyncio.TimerHandle | None = None
        self.waited = False
        self.followed = False
        self.entry: Resident | None = None

    def land(self, how: Landing, entry: Resident | None = None) -> None:
        """End the flight: tell its followers how, and give the lease back.

        entry: that was found or stored, if it may be served as it is.
        """
        if not self._landed.done():
            self.entry = entry
            self._landed.set_result(how)
            self._coalescing.forget(self._key, self)
            if self._renewal is not None:
                self._renewal.cancel()
                self._coalescing.spawn(self._release(how))

    async def landing(self, *, deadline_s: float) -> Landing:
        """The way in which it ended; REFUSED if it has not within the deadline, or if it belongs to another event loop."""
        self.followed = True
        if self._landed.get_loop() is not asyncio.get_running_loop():
            return Landing.REFUSED
        await asyncio.wait((self._landed,), timeout=deadline_s)
        return self._landed.result() if self._landed.done() else Landing.REFUSED

    async def fetch(
        self, usable: Callable[[CachedResponse], bool], *, wait: Callable[[], bool] = lambda: True
    ) -> CachedResponse | None:
        """The entry that the shared store holds, or that another process puts there while this one waits.

        None: the handler has to run here, with the lease, or without one because the answer cannot be shared or the
        holder is too slow; after that land() must be called, as ever. With no shared store, None at once. Raises StoreError:
        nobody knows; the handler has to run here.

        usable: whether a found entry may be served; one that may not is passed over.
        wait: asked while another process is fetching; if it says no: None, and `waited` says why.
        """
        leases = self._coalescing.leases
        if leases is None:
            return None
        holder = self._coalescing.holder()
        dead: CachedResponse | None = None
        pause_s, give_up_s = _FIRST_POLL_S, time.monotonic() + LEASE_WAIT_S
        while True:
            cancellations = _cancellations()
            try:
                found = await leases.take(self._key, holder=holder, lease_ms=LEASE_MS, passing=dead)
                if _cancellations() > cancellations:
                    # The answer came at that very moment: up to Python 3.11 asyncio.wait_for() then forgets the cancellation.
                    raise asyncio.CancelledError
            except asyncio.CancelledError:
                self._holder = holder  # perhaps it was granted
                self._coalescing.spawn(self._release(Landing.LEFT))
                raise
            if isinstance(found, CachedResponse):
                if usable(found):
                    return found
                dead, turn = found, None
            else:
                turn = found
            if turn is Turn.MINE:
                self._hold(holder)
            elif turn is Turn.THEIRS:
                self.waited = True
            if (
                turn is Turn.MINE
                or turn is Turn.UNCOALESCED
                or time.monotonic() > give_up_s
                or (self.waited and not wait())
            ):
                return None
            if turn is Turn.THEIRS:
                # A random part, so that the waiting processes do not ask in step.
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
                pause_s = min(pause_s * _POLL_GROWTH, _LAST_POLL_S)

    async def fetch_or_stale(
        self,
        usable: Callable[[CachedResponse], bool],
        *,
        acceptable: Callable[[CachedResponse], bool],
        instead: Callable[[CachedResponse], bool],
    ) -> CachedResponse | None:
        """The same entry; but rather than nothing the last one that was passed over, if it is kept beyond its lifetime.

        acceptable: whether anything may be done with an entry that was passed over.
        instead: whether a kept entry may be used instead of waiting for another process to make it anew.
        """
        stale: list[CachedResponse] = []

        def fresh(response: CachedResponse) -> bool:
            if usable(response):
                return True
            stale.append(response)
            return False

        response = await self.fetch(fresh, wait=lambda: not (stale and acceptable(stale[-1]) and instead(stale[-1])))
        if response is None and stale and acceptable(stale[-1]):
            return stale[-1]
        return response

    def _hold(self, holder: str) -> None:
        self._holder = holder
        if self._landed.done():  # it was given up while it asked
            self._coalescing.spawn(self._release(Landing.LEFT))
            return
        self._renewal = asyncio.get_running_loop().call_later(LEASE_MS / 3000, self._renew)

    def _renew(self) -> None:
        self._coalescing.spawn(self._renewed())
        self._renewal = asyncio.get_running_loop().call_later(LEASE_MS / 3000, self._renew)

    async def _renewed(self) -> None:
        if self._coalescing.leases is not None:
            with suppress(StoreError):  # if it stays away the lease expires, and others run their own handlers
                await self._coalescing.leases.renew(self._key, holder=self._holder, lease_ms=LEASE_MS)

    async def _release(self, how: Landing) -> None:
        uncoalesced_ms = 0
        if how is Landing.REFUSED:
            uncoalesced_ms = UNCOALESCED_MS if self._coalescing.lately_uncoalesced(self._key) else _STEP_AWAY_MS
        if self._coalescing.leases is not None:
            with suppress(StoreError):  # it expires by itself
                await self._coalescing.leases.release(self._key, holder=self._holder, uncoalesced_ms=uncoalesced_ms)


def _cancellations() -> int:
    """How often the running task was asked to end."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


class RequestCoalescing:
    """The flights under way, by key, and what is remembered of keys. Use from one event loop at a time.

    leases: of the store that is shared with other processes; None: this process is alone.
    errands: the tasks that give leases back.
    """

    def __init__(self, leases: Leases | None = None, *, errands: Errands | None = None) -> None:
        self.leases = leases
        self._errands = errands or Supervisor(Telemetry()).errands("coalescing")
        self._under_way: dict[str, Flight] = {}
        self._uncoalesced, self._store_backoff = _RecentKeys(), _RecentKeys()
        self._name = secrets.token_hex(8)
        self._attempts = count(1)

    def __len__(self) -> int:
        return len(self._under_way)

    def under_way(self, key: str) -> Flight | None:
        """The flight that a request for this key can follow."""
        return self._under_way.get(key)

    def lead(self, key: str) -> Flight:
        """Begin a flight that others can follow."""
        flight = self._under_way[key] = Flight(self, key)
        return flight

    def forget(self, key: str, flight: Flight) -> None:
        """Let nobody follow this flight any more; another one that took its place stays."""
        if self._under_way.get(key) is flight:
            del self._under_way[key]

    def holder(self) -> str:
        """A name for one attempt at a lease, unlike any other."""
        return f"{self._name}:{next(self._attempts)}"

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that no request waits for."""
        self._errands.start(work)

    async def settle(self) -> None:
        """Wait until every lease that is being given back has been given back. Before the shared store is closed."""
        await self._errands.finished()

    def uncoalesced(self, key: str, *, now_ms: int) -> bool:
        """Whether requests for this key run on their own for now."""
        return key in self._uncoalesced.until_ms and self._uncoalesced.holds(key, now_ms)

    def lately_uncoalesced(self, key: str) -> bool:
        """Whether it was said lately that they do."""
        return key in self._uncoalesced.until_ms

    def leave_uncoalesced(self, key: str, *, now_ms: int) -> None:
        """Let requests for this key run on their own for a while: nothing is stored that they could wait for."""
        self._uncoalesced.hold(key, now_ms + UNCOALESCED_MS)

    def back_off_store(self, key: str, *, now_ms: int) -> None:
        """Leave the shared store alone for this key for a while: it did not answer when it was asked for it."""
        self._store_backoff.hold(key, now_ms + STORE_BACKOFF_MS)

    def store_backs_off(self, key: str, *, now_ms: int) -> bool:
        """Whether the shared store is left alone for this key for now."""
        return key in self._store_backoff.until_ms and self._store_backoff.holds(key, now_ms)


class _RecentKeys:
    """Keys of which something holds until some time; the youngest 4,096 of them."""

    def __init__(self) -> None:
        self.until_ms: OrderedDict[str, int] = OrderedDict()

    def hold(self, key: str, until_ms: int) -> None:
        self.until_ms[key] = until_ms
        self.until_ms.move_to_end(key)
        while len(self.until_ms) > MOST_REMEMBERED:
            self.until_ms.popitem(last=False)

    def holds(self, key: str, now_ms: int) -> bool:
        until_ms = self.until_ms.get(key)
        if until_ms is not None and until_ms <= now_ms:
            del self.until_ms[key]
            return False
        return until_ms is not None
