"""Held registrations: a write may have changed their results, and their queries are run again before anything is evicted.

While one is held nothing that relies on it is served: it is marked dead, and the mark is taken from it if its owner, the process
that registered it, says in time that it was renewed. Every process decides by the same notifications in the same order. What is
not renewed in time is dead for good, in each process by its own clock: so the death of an owner is the death of what it held.
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
"""Renewed registrations whose round is remembered; of others a late word of an earlier round counts as one more change."""


class Rechecker(Protocol):
    """A part that runs the queries of this process's own held registrations again. Called in the reading thread; never waits."""

    @property
    def waiting(self) -> int:
        """Queries that wait to be run again, or are."""

    def held(self, name: str, told: Invalidated) -> None:
        """Recheck this one; called whenever there is one more change."""

    def given_up(self, told: Invalidated) -> None:
        """Tell the other processes that these are not rechecked: they wait for a word."""

    def settled(self, name: str, *, renewed: bool) -> None:
        """Note that this one is held no longer."""


@dataclass(slots=True)
class _Hold:
    """One held registration.

    cause: the first word of a change.
    until_ms: it is dead for good then.
    fired: the latest round of which a change was told.
    """

    cause: Invalidated
    until_ms: int
    fired: int


class HeldRegistrations:
    """Held registrations of all processes, as one of them knows them. take(), renew(), over() and clear() are called in the
    thread that reads notifications; the rest from anywhere.

    origin: of this process.
    limit_ms: after which one that was not renewed is dead for good; well above the time in which its owner gives up.
    wanted: whether one of this process's own is worth it now, by its name and its query's id. Asked in the reading thread.
    rechecker: None: there is none, so none of this process's own is held.
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
        """Those that are held, as they come and go."""
        return self._held.keys()

    def any_held(self, registration_ids: Iterable[str]) -> bool:
        """Whether one of these is held at this moment."""
        return bool(self._held) and not self._held.keys().isdisjoint(registration_ids)

    def rounds(self, registration_ids: Iterable[str]) -> int:
        """A number that grows whenever one of these is renewed."""
        return sum(self._rounds.get(registration_id, 0) for registration_id in registration_ids)

    def take(self, told: Invalidated) -> Invalidated | None:
        """Take in a change, and hold what can be held; returns the rest, by the names that apps know, None if there is none.
        What is held, and what is returned, is marked dead."""
        dead: list[str] = []
        for registration_id in told.registration_ids:
            number = round_of(registration_id) if isinstance(told.source, Cell) else None
            name = registration_id if number is None else in_round(registration_id, 0)
            if number is not None and number < self._rounds.get(name, 0):
                continue  # the round after it was activated in every cell, and has seen this write
            if number is None and round_of(name) is not None and self._dead_for_good(name):
                continue  # our own word of it, or another's
            if number is None or not self._hold(name, number, told):
                dead.append(name)
        self._validity.kill(dead, now_ms=self._clock())
        self._end(dead, renewed=False)
        return replace(told, registration_ids=tuple(dead)) if dead else None

    def _dead_for_good(self, name: str) -> bool:
        return name in self._validity.dead and name not in self._held

    def _hold(self, name: str, number: int, told: Invalidated) -> bool:
        hold = self._held.get(name)
        written = told.key is not None and told.match_type is not MatchType.EVICTED
        if not written or told.certain or (hold is None and name in self._validity.dead):
            return False
        own = name.startswith(self._origin)
        if own and (self.rechecker is None or not self.wanted(name, told.query_id)):
            if self.rechecker is not None:
                self.rechecker.given_up(replace(told, registration_ids=(name,)))
            return False
        if hold is not None:
            hold.fired = max(hold.fired, number)
        else:
            # First known as held, then as dead: whoever finds it dead learns why.
            self._held[name] = _Hold(told, self._clock() + self._limit_ms, number)
            self._validity.kill([name], now_ms=self._clock())
        if own and self.rechecker is not None:
            self.rechecker.held(name, replace(told, registration_ids=(name,)))
        return True

    def renew(self, told: Renewed) -> None:
        """Take in a renewal. One that a later change has overtaken counts for nothing."""
        number, name = round_of(told.registration_id), in_round(told.registration_id, 0)
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
        """Those of which nobody has said anything in time: dead for good."""
        if not self._held:
            return []
        now_ms = self._clock()
        # A clock that was set back must not hold anything for longer.
        names = [name for name, hold in self._held.items() if not now_ms < hold.until_ms <= now_ms + self._limit_ms]
        causes = [replace(self._held[name].cause, registration_ids=(name,)) for name in names]
        self._validity.keep_dead(names, now_ms=now_ms)
        self._end(names, renewed=False)
        return causes

    def clear(self) -> None:
        """Hold none any more: all of them are dead for good."""
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
        """Tell the rechecker which are held no longer, when what follows from that has begun."""
        settled, self._settled = self._settled, []
        rechecker = self.rechecker
        if rechecker is not None:
            for name, renewed in settled:
                rechecker.settled(name, renewed=renewed)

    async def settled(self, registration_ids: Sequence[str], *, within_s: float) -> None:
        """Returns when none of these is held any more, or when the time is over. On an event loop."""
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
