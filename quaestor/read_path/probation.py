"""Probation of routes: the first answers of each route are verified before its entries live long. A route is quarantined if its
handler answers differently from its entry. Pure, except for its memory.
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
"""Routes whose progress is remembered; further routes are verified like routes that have passed."""
_CHECKS = 2
"""Verifications of one answer: after a moment, and once more before its bounded lifetime ends."""
_MOST_LAPSES = 1
_MOST_CHECKS = 10
"""A probation ends without a verdict after this many times the usual checks. Some answers can never be verified, or are written
all the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """A route that is not cached: one of its answers diverged, or its handler writes.

    route: for people.
    reason: DIVERGED or WROTE.
    differs: the parts in which the answers differed; see `verification.differences`. Empty for WROTE.
    until_ms: its end; then probation begins again.
    """

    route: str
    reason: str
    differs: tuple[str, ...]
    until_ms: int


@dataclass(slots=True)
class _Progress:
    """Progress of one route.

    checks: verifications.
    same: verifications that found the same answer.
    lapses: verifications that found the same answer made of other queries.
    under_way: answers that are being verified.
    passed: the probation is over.
    doubted_until_ms: a repeated probation has begun, and no other begins before this time.
    """

    checks: int = 0
    same: int = 0
    lapses: int = 0
    under_way: int = 0
    passed: bool = False
    doubted_until_ms: int = 0


@dataclass(slots=True)
class Probation:
    """Standing of every route. Any hashable value may stand for a route.

    answers: number of each route's first answers that are verified; 0: none.
    ttl_ms: longest lifetime of entries of a route on probation.
    quarantine_ms: how long a route is not cached.
    """

    answers: int
    ttl_ms: int
    quarantine_ms: int
    _progress: dict[Hashable, _Progress] = field(default_factory=dict)
    _quarantined: dict[Hashable, Quarantine] = field(default_factory=dict)
    _shortened_ms: dict[Hashable, int] = field(default_factory=dict)

    def on_probation(self, route: Hashable) -> bool:
        """Whether a route's entries are limited to a short lifetime."""
        if not self.answers:
            return False
        progress = self._progress.get(route)
        return len(self._progress) < MOST_ROUTES if progress is None else not progress.passed

    def begin(self, route: Hashable) -> bool:
        """Whether one more answer of a route is to be verified now, as part of its probation. If so, end() must follow."""
        if not self.on_probation(route):
            return False
        progress = self._progress.setdefault(route, _Progress())
        if progress.under_way >= self.answers:
            return False
        progress.under_way += 1
        return True

    def end(self, route: Hashable) -> None:
        """Note that the verification of an answer of begin() has ended."""
        progress = self._progress.get(route)
        if progress is not None:
            progress.under_way = max(0, progress.under_way - 1)

    def judge(self, route: Hashable, finding: Finding, differs: tuple[str, ...], *, more: bool = False) -> Finding:
        """Note the finding of a verification, and return the judgement. The first time that the same answer was made of other
        queries is excused: starting programs read much once and keep it. The entry has to go all the same.

        more: the second answer was made of further queries only.
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
        """Repeat the probation of a route that has passed, because of evidence without proof. At most once in
        `quarantine_ms`."""
        progress = self._progress.get(route)
        if progress is not None and progress.passed and now_ms >= progress.doubted_until_ms:
            progress.checks = progress.same = 0
            progress.passed = False
            progress.doubted_until_ms = now_ms + self.quarantine_ms

    def begin_anew(self, route: Hashable) -> None:
        """Put a route on probation again, because one of its answers diverged."""
        self._progress.pop(route, None)

    def quarantine(self, route: Hashable, name: str, differs: tuple[str, ...] = (), *, now_ms: int) -> None:
        """Quarantine a route from now on.

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
        """Return the reason why a route is not to be cached; empty: it may be."""
        quarantine = self._quarantined.get(route)
        return "" if quarantine is None else quarantine.reason

    def may_shorten(self, route: Hashable) -> bool:
        """Whether a quarantine may end early: no earlier one did, within `quarantine_ms` before it began."""
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
