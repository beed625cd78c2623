"""What the predicates say of one write, each asked at most once about each of its two images.

A predicate that raises (a regular expression out of time, a value nobody foresaw) is counted and taken for a match, so
that its queries are invalidated: one bad query or record stops nothing and hides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from quaestor.invalidation.matching.compact_set import things
from quaestor.invalidation.matching.entities import Filter
from quaestor.invalidation.matching.predicates import Predicates
from quaestor.invalidation.matching.work import Work
from quaestor.model import AfterImage, Document, WriteKind

_MOST_FAILING: Final = 1_000


@dataclass(slots=True)
class Tally:
    """What matching has cost so far.

    writes: images of records looked at.
    tried: predicates evaluated.
    tried_last: for the latest write alone.
    failed: predicates and comparisons that raised, whose queries were invalidated for it.
    failing: ids of these queries until somebody takes them away (bounded).
    evicted: registrations that had to make room.
    work: see work.py.
    """

    writes: int = 0
    tried: int = 0
    tried_last: int = 0
    failed: int = 0
    evicted: int = 0
    failing: list[str] = field(default_factory=list)
    work: Work = field(default_factory=Work)


class Verdicts:
    """Lazy and memoised; lives as long as one write is looked at.

    tried: how many predicates were evaluated.
    """

    __slots__ = ("_after", "_before", "_now", "_predicates", "_tally", "_then", "before_known", "failing", "tried")

    def __init__(self, image: AfterImage, predicates: Predicates, tally: Tally) -> None:
        self._after = None if image.kind is WriteKind.DELETE else image.after
        self._before = image.before
        self._now: dict[Filter, bool | None] = {}
        self._then: dict[Filter, bool | None] = {}
        self._predicates = predicates
        self._tally = tally
        self.before_known = image.before_known
        self.failing: set[Filter] = set()
        self.tried = 0

    @property
    def asked(self) -> Iterable[Filter]:
        """The filters that were asked about the record after the write, each once."""
        return self._now

    def matching(self, candidates: list[Filter]) -> list[Filter]:
        """Those of the candidates that the record matches after the write, each once. The loop that everything waits for."""
        record = self._after
        if record is None:
            return []
        found: list[Filter] = []
        verdicts: dict[Filter, bool | None] = dict.fromkeys(candidates)
        verdicts.update(self._now)
        self._now = verdicts
        for item in verdicts:
            matches = item.matches
            if verdicts[item] is not None or matches is None:
                verdict = self.now(item)
            else:
                self.tried += 1
                try:
                    verdict = verdicts[item] = matches(record)
                except Exception:
                    verdict = verdicts[item] = self._failed(item)
            if verdict:
                found.append(item)
        return found

    def now(self, item: Filter) -> bool:
        """Does the record match after the write?"""
        verdict = self._now.get(item)
        if verdict is None:
            verdict = self._now[item] = self._ask(item, self._after)
        return verdict

    def then(self, item: Filter) -> bool | None:
        """Did it match before? None: not known."""
        if not self.before_known:
            return None
        verdict = self._then.get(item)
        if verdict is None:
            verdict = self._then[item] = self._ask(item, self._before)
        return verdict

    def failed(self) -> None:
        """A comparison of this write raised."""
        self._tally.failed += 1

    def _ask(self, item: Filter, record: Document | None) -> bool:
        if record is None:
            return False
        self.tried += 1
        try:
            return self._predicates.holds(item, record)
        except Exception:
            return self._failed(item)

    def _failed(self, item: Filter) -> bool:
        tally = self._tally
        tally.failed += 1
        for query in things(item.queries):
            query.tenant.failed += 1
            if len(tally.failing) < _MOST_FAILING:
                tally.failing.append(query.query_id)
        self.failing.add(item)
        return True
