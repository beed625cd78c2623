"""Coalescing: of the requests for one key, one runs the handler and the others wait for its entry.

In this process, later requests follow the first one's flight. The flight lands with the entry that was found or stored, and each
follower judges that entry, even if memory had no room for it. Across processes, the leader first takes a lease in the shared
store. A process without the lease waits until the entry appears there, or until the lease is free. A leader always lands exactly
once (stored, refused, left). A lease that is not renewed expires, so no process waits for ever. A key whose answer could not be
stored is remembered for a moment, so that its next requests do not queue in vain.

No request depends on another request's client. A follower that leaves affects no other request. When a leader leaves, one of its
followers leads.
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
"""How long requests run on their own for a key whose answer could not be stored."""
STORE_BACKOFF_MS = 1_000
"""How long a store that did not answer is spared requests for the same key. Later requests then do not wait for it as well."""
MOST_REMEMBERED = 4096
LEASE_MS = 3_000
"""Lifetime of a lease: a leading process without a renewal for so long counts as dead. Renewals come three times as often."""
LEASE_WAIT_S = 8.0
"""How long this process waits for another process's handler before it runs its own."""
_STEP_AWAY_MS = 200
"""How long a lease reports that an answer was refused this once: long enough for every waiting process to see it."""
_FIRST_POLL_S = 0.002
_LAST_POLL_S = 0.05
_POLL_GROWTH = 1.5


class Landing(Enum):
    """The end of a flight."""

    STORED = auto()
    REFUSED = auto()
    """The answer exists, but must not be given to another client."""
    LEFT = auto()
    """No answer: the handler raised, or its client went away."""


class Flight:
    """One handler run that others may wait for. Its leader calls land(); calling it again changes nothing.

    waited: whether it waited for another process's handler.
    followed: whether another request has waited for it.
    entry: the entry that it landed with, found or stored, for its followers.
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
        """End the flight: notify its followers, and release the lease.

        entry: the found or stored entry, if it may be served as it is.
        """
        if not self._landed.done():
            self.entry = entry
            self._landed.set_result(how)
            self._coalescing.forget(self._key, self)
            if self._renewal is not None:
                self._renewal.cancel()
                self._coalescing.spawn(self._release(how))

    async def landing(self, *, deadline_s: float) -> Landing:
        """Wait for the landing. REFUSED if it has not landed by the deadline, or belongs to another event loop."""
        self.followed = True
        if self._landed.get_loop() is not asyncio.get_running_loop():
            return Landing.REFUSED
        await asyncio.wait((self._landed,), timeout=deadline_s)
        return self._landed.result() if self._landed.done() else Landing.REFUSED

    async def fetch(
        self, usable: Callable[[CachedResponse], bool], *, wait: Callable[[], bool] = lambda: True
    ) -> CachedResponse | None:
        """Return the shared store's entry, now there or stored by another process while this one waits.

        None: the handler has to run here, with the lease, or without it because the answer cannot be shared or the holder is
        too slow. land() must still be called after that. Without a shared store, None at once. Raises StoreError if the store
        does not answer; then the handler has to run here.

        usable: whether a found entry may be served; an unusable one is skipped.
        wait: called while another process's handler runs; False ends the wait: None, with `waited` set.
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
                taken = await leases.take(self._key, holder=holder, lease_ms=LEASE_MS, passing=dead)
                if _cancellations() > cancellations:
                    # The reply came at the moment of cancellation. Up to Python 3.11 asyncio.wait_for() then loses the
                    # cancellation.
                    raise asyncio.CancelledError
            except asyncio.CancelledError:
                self._holder = holder  # the lease may have been granted
                self._coalescing.spawn(self._release(Landing.LEFT))
                raise
            if isinstance(taken, CachedResponse):
                if usable(taken):
                    return taken
                dead, turn = taken, None
            else:
                turn = taken
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
                # A random part, so that the waiting processes do not poll in step.
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
                pause_s = min(pause_s * _POLL_GROWTH, _LAST_POLL_S)

    async def fetch_or_stale(
        self,
        usable: Callable[[CachedResponse], bool],
        *,
        acceptable: Callable[[CachedResponse], bool],
        instead: Callable[[CachedResponse], bool],
    ) -> CachedResponse | None:
        """Fetch the entry; if there is none, return the newest stale one that was skipped, if it may be used.

        acceptable: whether a skipped entry may be used at all.
        instead: whether a stale entry may be used now, instead of waiting for another process to refresh it.
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
        if self._landed.done():  # the flight was given up while it waited for the lease
            self._coalescing.spawn(self._release(Landing.LEFT))
            return
        self._renewal = asyncio.get_running_loop().call_later(LEASE_MS / 3000, self._renew)

    def _renew(self) -> None:
        self._coalescing.spawn(self._renewed())
        self._renewal = asyncio.get_running_loop().call_later(LEASE_MS / 3000, self._renew)

    async def _renewed(self) -> None:
        if self._coalescing.leases is not None:
            with suppress(StoreError):  # if the store stays away the lease expires, and others run their own handlers
                await self._coalescing.leases.renew(self._key, holder=self._holder, lease_ms=LEASE_MS)

    async def _release(self, how: Landing) -> None:
        uncoalesced_ms = 0
        if how is Landing.REFUSED:
            uncoalesced_ms = UNCOALESCED_MS if self._coalescing.lately_uncoalesced(self._key) else _STEP_AWAY_MS
        if self._coalescing.leases is not None:
            with suppress(StoreError):  # the lease expires by itself
                await self._coalescing.leases.release(self._key, holder=self._holder, uncoalesced_ms=uncoalesced_ms)


def _cancellations() -> int:
    """Return how often the running task was cancelled."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


class RequestCoalescing:
    """The flights under way, by key, and the memory of uncoalesced keys. Use from one event loop at a time.

    leases: of the store that is shared with other processes; None: this process is alone.
    errands: the tasks that release leases.
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
        """Return the flight that a request for this key can follow."""
        return self._under_way.get(key)

    def lead(self, key: str) -> Flight:
        """Begin a flight that others can follow."""
        flight = self._under_way[key] = Flight(self, key)
        return flight

    def forget(self, key: str, flight: Flight) -> None:
        """Let no further request follow this flight; a newer flight for the key stays."""
        if self._under_way.get(key) is flight:
            del self._under_way[key]

    def holder(self) -> str:
        """Return a unique name for one attempt at a lease."""
        return f"{self._name}:{next(self._attempts)}"

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that no request waits for."""
        self._errands.start(work)

    async def settle(self) -> None:
        """Wait until every pending lease is released. Call it before the shared store is closed."""
        await self._errands.finished()

    def uncoalesced(self, key: str, *, now_ms: int) -> bool:
        """Whether requests for this key run on their own for now."""
        return key in self._uncoalesced.until_ms and self._uncoalesced.holds(key, now_ms)

    def lately_uncoalesced(self, key: str) -> bool:
        """Whether requests for this key ran on their own lately."""
        return key in self._uncoalesced.until_ms

    def leave_uncoalesced(self, key: str, *, now_ms: int) -> None:
        """Let requests for this key run on their own for a while, because its answer is not stored."""
        self._uncoalesced.hold(key, now_ms + UNCOALESCED_MS)

    def back_off_store(self, key: str, *, now_ms: int) -> None:
        """Spare the shared store requests for this key for a while, because it did not answer."""
        self._store_backoff.hold(key, now_ms + STORE_BACKOFF_MS)

    def store_backs_off(self, key: str, *, now_ms: int) -> bool:
        """Whether the shared store is spared requests for this key now."""
        return key in self._store_backoff.until_ms and self._store_backoff.holds(key, now_ms)


class _RecentKeys:
    """Keys with an end time each; the youngest 4,096 are kept."""

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
