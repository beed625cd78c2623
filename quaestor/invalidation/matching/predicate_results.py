"""Results of the predicates for one write, each evaluated at most once on each of its two images.

A predicate may raise, for a regular expression out of time or an unexpected value. The failure is counted and taken for a
match, so that its queries are invalidated. One bad query or record never stops or hides another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from quaestor.invalidation.matching.compact_set import elements
from quaestor.invalidation.matching.entities import Filter
from quaestor.invalidation.matching.predicates import Predicates
from quaestor.invalidation.matching.tally import Tally
from quaestor.model import AfterImage, Document, WriteKind

_MOST_FAILING: Final = 1_000


class PredicateResults:
    """Lazy, memoised results of one write, for the duration of its matching.

    before_known: the image before the write is known.
    failing: filters whose predicate raised.
    tried: number of predicates evaluated.
    """

    __slots__ = (
        "_after",
        "_before",
        "_key",
        "_matched",
        "_matches",
        "_predicates",
        "_tally",
        "before_known",
        "failing",
        "tried",
    )

    def __init__(self, image: AfterImage, predicates: Predicates, tally: Tally) -> None:
        self._after = None if image.kind is WriteKind.DELETE else image.after
        self._before = image.before
        self._key = image.key
        self._matches: dict[Filter, bool | None] = {}
        self._matched: dict[Filter, bool | None] = {}
        self._predicates = predicates
        predicates.shared.record = None
        self._tally = tally
        self.before_known = image.before_known
        self.failing: set[Filter] = set()
        self.tried = 0

    @property
    def evaluated(self) -> Iterable[Filter]:
        """Filters evaluated on the record after the write, each once."""
        return self._matches

    def matching(self, candidates: list[Filter]) -> list[Filter]:
        """Return the candidates that the record matches after the write, each once. The innermost loop of the matching."""
        record = self._after
        if record is None:
            return []
        filters: list[Filter] = []
        results: dict[Filter, bool | None] = dict.fromkeys(candidates)
        results.update(self._matches)
        self._matches = results
        for item in results:
            matches = item.matches
            if results[item] is not None or matches is None:
                result = self.matches_now(item)
            else:
                self.tried += 1
                try:
                    result = results[item] = matches(record)
                except Exception:
                    result = results[item] = self._failed(item)
            if result:
                filters.append(item)
        return filters

    def matches_now(self, item: Filter) -> bool:
        """Whether the record matches after the write."""
        result = self._matches.get(item)
        if result is None:
            result = self._matches[item] = self._evaluate(item, self._after)
        return result

    def matched_before(self, item: Filter) -> bool | None:
        """Whether the record matched before the write; None: not known."""
        if not self.before_known:
            return None if item.may_match(self._key) else False
        result = self._matched.get(item)
        if result is None:
            result = self._matched[item] = self._evaluate(item, self._before)
        return result

    def comparison_failed(self) -> None:
        """Count a comparison of this write that raised."""
        self._tally.failed += 1

    def _evaluate(self, item: Filter, record: Document | None) -> bool:
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
        for query in elements(item.queries):
            query.tenant.failed += 1
            if len(tally.failing) < _MOST_FAILING:
                tally.failing.append(query.query_id)
        self.failing.add(item)
        return True
