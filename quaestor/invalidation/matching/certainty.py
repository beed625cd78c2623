"""Certainty of a change: whether a write has certainly changed a result, so that a recheck would be useless.

An uncertain change ends a registration too. Apps may run the query again before they evict its entries.
"""

from __future__ import annotations

from quaestor.invalidation.matching.entities import LiveRegistration
from quaestor.model import AfterImage, MatchType
from quaestor.planning.plan_parts import Result, Window
from quaestor.planning.rules import Rules


def is_certain(live: LiveRegistration, image: AfterImage, change: MatchType) -> bool:
    """Whether this write has certainly changed the result of the registration that it ends."""
    rules = live.query.rules
    if not rules.exact or change is MatchType.MATCH:
        return False
    if rules.result is Result.COUNT:
        return rules.window is Window.NONE  # otherwise the cells share the spare records
    if rules.result is not Result.RECORDS:
        return False  # another record may hold the value, also in another cell
    if change is MatchType.CHANGE:
        return _shows(rules, image)
    if rules.window is Window.UNORDERED:
        return change is MatchType.REMOVE and live.members is not None
    return rules.window is not Window.OFFSET


def _shows(rules: Rules, image: AfterImage) -> bool:
    """Whether the result shows a change of a member."""
    if image.before is not None and image.before_known and image.after_exact:
        return True
    return image.changed is not None and not rules.shown
