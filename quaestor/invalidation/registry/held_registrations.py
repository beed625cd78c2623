"""Held registrations: a write may have changed their results, so their queries run again before their entries are evicted.

No entry that relies on a held registration is served. The registration is marked dead; the mark is removed if its owner, the
process that registered it, reports the renewal in time. Every process decides by the same notifications in the same order. A
registration that is not renewed in time is dead for good, in each process by its own clock. The death of an owner therefore
ends its held registrations.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

from quaestor.clock import Clock
from quaestor.invalidation.registry.registration_ids import in_round, round_of
from quaestor.invalidation.registry.validity import Validity
from quaestor.model import Cell, Invalidated, MatchType, Renewed

_MOST_ROUNDS: Final = 50_000
"""Renewed registrations whose round is remembered. For others, a late report of an earlier round counts as a further change."""


class Rechecker(Protocol):
    """Runner of the queries of this process's own held registrations. Called in the reading thread; never waits."""

    @property
    def waiting(self) -> int:
        """Number of queries that wait to run again, or run."""

    def held(self, name: str, invalidated: Invalidated) -> None:
        """Recheck this registration; called for each further change."""

    def given_up(self, invalidated: Invalidated) -> None:
        """Report to the other processes that these registrations are not rechecked, so that they stop waiting."""

    def settled(self, name: str, *, renewed: bool) -> None:
        """Note that this registration is held no longer."""


@dataclass(slots=True)
class _Hold:
    """Hold of one registration.

    cause: the first reported change.
    until_ms: time from which the registration is dead for good.
    fired: latest round with a reported change.
    """

    cause: Invalidated
    until_ms: int
    fired: int


class HeldRegistrations:
    """Held registrations of all processes, in the view of one process.

    take(), renew(), over() and clear() are called in the thread that reads notifications; the rest from any thread.

    origin: origin of this process.
    limit_ms: time after which a registration without renewal is dead for good; well above the time in which its owner gives up.
    wanted: whether a recheck of an own registration pays now, by its name and its query's id. Called in the reading thread.
    rechecker: None: there is none, so no own registration is held.
    """

    def __init__(
        self,
        validity: Validity,
        *,
        origin: str,
        limit_ms: int,
        clock: Clock,
        wanted: Callable[[str, str], bool] = lambda name, query_id: False,
    ) -> None:
        self.rechecker: Rechecker | None = None
        self.wanted = wanted
        self._validity = validity
        self._origin = origin
        self._limit_ms = limit_ms
        self._clock = clock
        self._held: dict[str, _Hold] = {}
        self._rounds: dict[str, int] = {}
        self._settled: list[tuple[str, bool]] = []
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._lock = threading.Lock()

    @property
    def names(self) -> Container[str]:
        """Names of the held registrations, always up to date."""
        return self._held.keys()

    def any_held(self, registration_ids: Iterable[str]) -> bool:
        """Whether one of these registrations is held at this moment."""
        return bool(self._held) and not self._held.keys().isdisjoint(registration_ids)

    def rounds(self, registration_ids: Iterable[str]) -> int:
        """Return a number that grows whenever one of these registrations is renewed."""
        return sum(self._rounds.get(registration_id, 0) for registration_id in registration_ids)

    def take(self, invalidated: Invalidated) -> Invalidated | None:
        """Take in a change, and hold the registrations that can be held; return the others, by the names that apps know, or None.

        Held and returned registrations are marked dead.
        """
        dead: list[str] = []
        for registration_id in invalidated.registration_ids:
            number = round_of(registration_id) if isinstance(invalidated.source, Cell) else None
            name = registration_id if number is None else in_round(registration_id, 0)
            if number is not None and number < self._rounds.get(name, 0):
                continue  # the later round was activated in every cell, and has seen this write
            if number is None and round_of(name) is not None and self._dead_for_good(name):
                continue  # a report of a death by this process, or by another
            if number is None or not self._hold(name, number, invalidated):
                dead.append(name)
        self._validity.kill(dead, now_ms=self._clock())
        self._end(dead, renewed=False)
        return replace(invalidated, registration_ids=tuple(dead)) if dead else None

    def _dead_for_good(self, name: str) -> bool:
        return name in self._validity.dead and name not in self._held

    def _hold(self, name: str, number: int, invalidated: Invalidated) -> bool:
        hold = self._held.get(name)
        written = invalidated.key is not None and invalidated.match_type is not MatchType.EVICTED
        if not written or invalidated.certain or (hold is None and name in self._validity.dead):
            return False
        own = name.startswith(self._origin)
        if own and (self.rechecker is None or not self.wanted(name, invalidated.query_id)):
            if self.rechecker is not None:
                self.rechecker.given_up(replace(invalidated, registration_ids=(name,)))
            return False
        if hold is not None:
            hold.fired = max(hold.fired, number)
        else:
            # Known as held first, and as dead afterwards: a reader that finds it dead then also finds the reason.
            self._held[name] = _Hold(invalidated, self._clock() + self._limit_ms, number)
            self._validity.kill([name], now_ms=self._clock())
        if own and self.rechecker is not None:
            self.rechecker.held(name, replace(invalidated, registration_ids=(name,)))
        return True

    def renew(self, renewed: Renewed) -> None:
        """Take in a renewal. A renewal that a later change has overtaken is ignored."""
        number, name = round_of(renewed.registration_id), in_round(renewed.registration_id, 0)
        hold = self._held.get(name)
        if number is None or hold is None or hold.fired >= number:
            return
        self._rounds.pop(name, None)
        self._rounds[name] = number
        if len(self._rounds) > _MOST_ROUNDS:
            del self._rounds[next(iter(self._rounds))]
        self._validity.revive(name)
        self._end([name], renewed=True)

    def over(self) -> list[Invalidated]:
        """Return the held registrations without a verdict in time: they are dead for good."""
        if not self._held:
            return []
        now_ms = self._clock()
        # A clock that was set back must not prolong a hold.
        names = [name for name, hold in self._held.items() if not now_ms < hold.until_ms <= now_ms + self._limit_ms]
        causes = [replace(self._held[name].cause, registration_ids=(name,)) for name in names]
        self._validity.keep_dead(names, now_ms=now_ms)
        self._end(names, renewed=False)
        return causes

    def clear(self) -> None:
        """End every hold: all held registrations are dead for good."""
        self._end(list(self._held), renewed=False)

    def _end(self, names: Sequence[str], *, renewed: bool) -> None:
        for name in names:
            if not renewed:
                self._rounds.pop(name, None)
            if self._held.pop(name, None) is None:
                continue
            with self._lock:
                waiting = self._waiting.pop(name, [])
            for future in waiting:
                with suppress(RuntimeError):  # its loop was closed
                    future.get_loop().call_soon_threadsafe(_done, future)
            if name.startswith(self._origin):
                self._settled.append((name, renewed))

    def tell(self) -> None:
        """Report to the rechecker which registrations are held no longer, after their consequences have begun."""
        settled, self._settled = self._settled, []
        rechecker = self.rechecker
        if rechecker is not None:
            for name, renewed in settled:
                rechecker.settled(name, renewed=renewed)

    async def settled(self, registration_ids: Sequence[str], *, within_s: float) -> None:
        """Return when none of these is held any more, or when the time is over. On an event loop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                for registration_id in registration_ids:
                    await self._ended(registration_id)

    async def _ended(self, name: str) -> None:
        if name not in self._held:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._waiting.setdefault(name, []).append(future)
        try:
            if name in self._held:
                await future
        finally:
            with self._lock:
                others = self._waiting.get(name)
                if others is not None and future in others:
                    others.remove(future)
                    if not others:
                        del self._waiting[name]


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
