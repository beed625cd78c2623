"""Probation of routes: the first answers of each are verified before its entries live long, and a route that has answered
otherwise than its entry says is quarantined. Pure, but for what it remembers.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from quaestor.model import Uncacheable
from quaestor.read_path.verification import Finding

DIVERGED: Final = Finding.DIVERGED.value
WROTE: Final = Uncacheable.WROTE.value
MOST_ROUTES = 1_024
"""Routes of which it is remembered how their probation goes; further ones are verified like those that have passed."""
_CHECKS = 2
"""Of one answer: after a moment, and once more before its bounded lifetime ends."""
_MOST_LAPSES = 1
_MOST_CHECKS = 10
"""As many times those that should do: a probation ends without a verdict then, for what cannot be verified, or is written all the
time, is not to be asked for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """A route that is not cached: an answer of it diverged, or its handler writes.

    route: for people.
    reason: DIVERGED or WROTE.
    differs: the parts in which the answers differed; see `verification.differences`. Empty for WROTE.
    until_ms: its end; then probation begins anew.
    """

    route: str
    reason: str
    differs: tuple[str, ...]
    until_ms: int


@dataclass(slots=True)
class _Progress:
    """Progress of one route.

    checks: verifications.
    same: of them those that found the same.
    lapses: verifications that found the same answer made of other queries.
    under_way: answers that are being verified.
    passed: the probation is over.
    doubted_until_ms: it has begun anew, and does not again before.
    """

    checks: int = 0
    same: int = 0
    lapses: int = 0
    under_way: int = 0
    passed: bool = False
    doubted_until_ms: int = 0


@dataclass(slots=True)
class Probation:
    """Standing of every route. A route is whatever hashable thing stands for it.

    answers: of each route, that are verified first; 0: none.
    ttl_ms: how long entries of a route on probation live at most.
    quarantine_ms: how long a route is not cached.
    """

    answers: int
    ttl_ms: int
    quarantine_ms: int
    _progress: dict[Hashable, _Progress] = field(default_factory=dict)
    _quarantined: dict[Hashable, Quarantine] = field(default_factory=dict)
    _shortened_ms: dict[Hashable, int] = field(default_factory=dict)

    def on_probation(self, route: Hashable) -> bool:
        """Whether a route's entries are bounded to a short life."""
        if not self.answers:
            return False
        progress = self._progress.get(route)
        return len(self._progress) < MOST_ROUTES if progress is None else not progress.passed

    def begin(self, route: Hashable) -> bool:
        """Whether one more answer of a route is to be verified now, as part of its probation. If so, end() has to be called."""
        if not self.on_probation(route):
            return False
        progress = self._progress.setdefault(route, _Progress())
        if progress.under_way >= self.answers:
            return False
        progress.under_way += 1
        return True

    def end(self, route: Hashable) -> None:
        """Note that an answer of begin() is not verified any further."""
        progress = self._progress.get(route)
        if progress is not None:
            progress.under_way = max(0, progress.under_way - 1)

    def judge(self, route: Hashable, finding: Finding, differs: tuple[str, ...], *, more: bool = False) -> Finding:
        """Take in what a verification has found, and what is to be made of it: the first time that the same answer was made of
        other queries is excused, for much is read once and kept by programs that begin. Its entry has to go all the same.

        more: it was made of further queries only.
        """
        progress = self._progress.get(route)
        if progress is None:
            return finding
        progress.checks += 1
        progress.same += finding is Finding.SAME
        enough = _CHECKS * self.answers
        progress.passed = progress.passed or progress.same >= enough or progress.checks >= _MOST_CHECKS * enough
        if finding is Finding.DIVERGED and differs == ("queries",) and not more:
            progress.lapses += 1
            if progress.lapses <= _MOST_LAPSES:
                return Finding.EXCUSED
        return finding

    def doubt(self, route: Hashable, *, now_ms: int) -> None:
        """Put a route that has passed on probation again, because of what speaks against it without proving it; but not all the
        time."""
        progress = self._progress.get(route)
        if progress is not None and progress.passed and now_ms >= progress.doubted_until_ms:
            progress.checks = progress.same = 0
            progress.passed = False
            progress.doubted_until_ms = now_ms + self.quarantine_ms

    def begin_anew(self, route: Hashable) -> None:
        """Put a route on probation again: one of its answers diverged."""
        self._progress.pop(route, None)

    def quarantine(self, route: Hashable, name: str, differs: tuple[str, ...] = (), *, now_ms: int) -> None:
        """Quarantine a route, from now on.

        name: for people.
        differs: the parts in which two answers differed; empty: its handler writes.
        """
        self._quarantined[route] = Quarantine(
            route=name,
            reason=DIVERGED if differs else WROTE,
            differs=differs,
            until_ms=now_ms + self.quarantine_ms,
        )

    def barred(self, route: Hashable) -> str:
        """The reason why a route is not to be cached; empty: it may be."""
        quarantine = self._quarantined.get(route)
        return "" if quarantine is None else quarantine.reason

    def may_shorten(self, route: Hashable) -> bool:
        """Whether a quarantine may end early: none of the route has, within `quarantine_ms` before it began."""
        quarantine, shortened_ms = self._quarantined.get(route), self._shortened_ms.get(route)
        if quarantine is None or shortened_ms is None:
            return quarantine is not None
        return quarantine.until_ms - shortened_ms > 2 * self.quarantine_ms

    def note_shortened(self, route: Hashable, *, now_ms: int) -> None:
        """Note that a quarantine ends early."""
        if len(self._shortened_ms) >= MOST_ROUTES:
            del self._shortened_ms[next(iter(self._shortened_ms))]
        self._shortened_ms[route] = now_ms

    def release(self, route: Hashable) -> None:
        """End a route's quarantine."""
        self._quarantined.pop(route, None)

    @property
    def quarantines(self) -> list[Quarantine]:
        """The routes that are not cached now."""
        return list(self._quarantined.values())
