"""First change of a cached result: the match type of the first write that changes it, or None.

Every decision here uses the write's images and the registration's knowledge of its result. Where neither suffices, the
answer is a change: a result is never stale, at worst invalidated for nothing. Source: InvaliDB, PVLDB 2020, section 5.2. Two
points go beyond it: a cached result needs only its first change, and a limited window only its last key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import bson

from quaestor.invalidation.matching.boundary import behind
from quaestor.invalidation.matching.contributors import Counted, Holders, Inputs, Kept, Page, Shown, Unplaced
from quaestor.invalidation.matching.entities import LiveRegistration
from quaestor.invalidation.matching.values import reachable
from quaestor.model import AfterImage, Document, MatchType, WriteKind
from quaestor.planning.plan_parts import Result, Window
from quaestor.planning.projected import shows_same
from quaestor.planning.rules import Rules
from quaestor.query.encoding import OPTIONS
from quaestor.query.sorting import sort_key


def first_change(
    live: LiveRegistration, image: AfterImage, *, member: bool, after: bool, before: bool | None, identity: int = 0
) -> MatchType | None:
    """Return the match type of the change that `image` makes to the result of `live`; None: no change.

    member: the record is among the members; meaningless if the members are unknown.
    after: the record matches after the write.
    before: the record matched before the write; None: not known.
    identity: the record's hash.

    Images up to `live.since` never change the result: the read has seen them.
    """
    if image.version <= live.since:
        return None
    rules = live.query.rules
    if not rules.filtered:
        return MatchType.MATCH
    if image.changed is not None and rules.relevant.fields.untouched(image.changed):
        return None  # the write did not touch the fields that decide membership
    if live.kept is not None:
        return _contributed_to(live, live.kept, image, identity, member, after)
    if not rules.by_predicate:
        return _widened(live, rules, image, member, after, before)
    if live.members is None:
        return _unremembered(live, rules, image, after, before)
    if rules.result is Result.COUNT:
        return None if member is after else MatchType.ADD if after else MatchType.REMOVE
    if rules.window is Window.OFFSET:
        return _behind_offset(live, rules, image, member, after, before)
    if member:
        return _member(live, rules, image, after)
    if not after or _beyond(live, rules, image.after) or _outside_still(rules, image):
        return None
    return MatchType.ADD


def _widened(
    live: LiveRegistration, rules: Rules, image: AfterImage, member: bool, after: bool, before: bool | None
) -> MatchType | None:
    """Return the change of a result whose predicate also passes records outside the result.

    Every record of the result passes the predicate. Known members are the records of a find. A record that is no member and
    keeps its place becomes a member only if a member leaves, which ends the result.
    """
    if live.members is not None and rules.window is not Window.OFFSET:
        if member:
            return _member(live, rules, image, after)
        placed = rules.window in (Window.NONE, Window.BOUNDARY) or rules.keeps_place
        stays = not after or (placed and _placed_as_before(rules, image))
        return None if stays else MatchType.MATCH
    if before and after and _still_matching(rules, image) is None:
        return None
    return MatchType.MATCH if after or before is not False else None


def _contributed_to(
    live: LiveRegistration, kept: Kept, image: AfterImage, identity: int, member: bool, after: bool
) -> MatchType | None:
    """Return the change of a result whose contributors are known."""
    if isinstance(kept, Counted):
        return kept.change(identity, after)
    if isinstance(kept, Holders | Inputs):
        return kept.change(identity, image.after if after else None)
    rules = live.query.rules
    if isinstance(kept, Page) and identity in kept.skipped:
        if after and _outside_still(rules, image):
            return None
        stays = kept.still_skips(image.after if after else None)
        return None if stays else MatchType.CHANGE_INDEX if after else MatchType.REMOVE
    if isinstance(kept, Unplaced) and not kept.shows(identity):
        return kept.others.change(identity, image.after if after else None)
    if member:
        shown = kept if isinstance(kept, Shown) else kept.shown
        record = image.after if after else None
        if shown is not None and record is not None and _stays(shown, rules, image, record, identity):
            return None
        return _member(live, rules, image, after)
    if not after or _beyond(live, rules, image.after) or _outside_still(rules, image):
        return None
    return MatchType.ADD


def _stays(shown: Shown, rules: Rules, image: AfterImage, record: Document, identity: int) -> bool:
    """Whether a member that still matches looks the same, and all members keep their places. The places follow the write."""
    if shown.places is None:
        return shown.same(identity, rules, record)
    if not _looks_same(rules, image) and not shown.looks_same(identity, rules, record):
        return False
    return shown.places.keeps(identity, sort_key(record, rules.sort))


def _looks_same(rules: Rules, image: AfterImage) -> bool:
    """Whether the result shows a record as before, wherever the record stands."""
    if image.changed is not None and rules.relevant.visible.untouched(image.changed):
        return True
    if image.before is None or image.after is None or not image.before_known or not image.after_exact:
        return False
    return rules.relevant.visible.same(image.before, image.after) or _shows_same(rules, image.before, image.after)


def _outside_still(rules: Rules, image: AfterImage) -> bool:
    """Whether a record outside the window keeps its place, and so stays outside.

    The database may choose among equals of a sort anew each time, but not because of such a write.
    """
    return (rules.keeps_place or bool(rules.sort)) and _placed_as_before(rules, image)


def _placed_as_before(rules: Rules, image: AfterImage) -> bool:
    """Whether the write left all fields alone that decide whether, and where, the record is in the result."""
    if image.changed is not None and rules.relevant.placing.untouched(image.changed):
        return True
    if image.before is None or image.after is None or not image.before_known or not image.after_exact:
        return False
    return rules.relevant.placing.same(image.before, image.after)


def _member(live: LiveRegistration, rules: Rules, image: AfterImage, after: bool) -> MatchType | None:
    if not after:
        return MatchType.REMOVE
    if image.kind is WriteKind.INSERT and image.version <= live.read_at:
        return None  # the read found the record, so it came after the insertion: the result shows this state
    return _still_matching(rules, image)


def _still_matching(rules: Rules, image: AfterImage) -> MatchType | None:
    """Return the change of a record that matched and still matches: in its look or in its place."""
    if rules.by_predicate and image.changed is not None and _only_filtered_by(rules, image.changed):
        return None
    if image.before is None or image.after is None or not image.before_known or not image.after_exact:
        return MatchType.CHANGE
    if rules.relevant.fields.same(image.before, image.after):
        return None
    sort = rules.sort
    if sort and sort_key(image.before, sort) != sort_key(image.after, sort):
        return MatchType.CHANGE_INDEX
    if rules.relevant.visible.same(image.before, image.after) or _shows_same(rules, image.before, image.after):
        return None
    return MatchType.CHANGE


def _only_filtered_by(rules: Rules, changed: Sequence[str]) -> bool:
    """Whether an update of these paths left all shown fields and all sort fields alone."""
    return rules.relevant.visible.untouched(changed) and rules.order.untouched(changed)


def _shows_same(rules: Rules, before: Document, after: Document) -> bool:
    """Whether the result shows both images alike. Without a sort the filtered fields may decide the order, so they must stay."""
    if not rules.shown or not rules.index_order.tied.same(before, after):
        return False
    return (bool(rules.sort) or rules.relevant.placing.same(before, after)) and shows_same(rules.shown, before, after)


def _beyond(live: LiveRegistration, rules: Rules, record: Any) -> bool:
    """Whether the record stands behind the last member of a full window."""
    return live.boundary is not None and record is not None and behind(live.boundary, rules, record)


def _unremembered(
    live: LiveRegistration, rules: Rules, image: AfterImage, after: bool, before: bool | None
) -> MatchType | None:
    """Return the change of a result whose members are not known, from the images before and after the write."""
    if before is None:
        return MatchType.MATCH
    if not before and not after:
        return None
    if rules.result is Result.COUNT:
        return None if before == after else MatchType.ADD if after else MatchType.REMOVE
    if rules.result is Result.VALUES:
        return _values(rules, image, after, before)
    if rules.window is not Window.OFFSET and _beyond_both(live, rules, image, after, before):
        return None
    if before and after:
        return _still_matching(rules, image)
    return MatchType.ADD if after else MatchType.REMOVE


def _beyond_both(live: LiveRegistration, rules: Rules, image: AfterImage, after: bool, before: bool) -> bool:
    return (not before or _beyond(live, rules, image.before)) and (not after or _beyond(live, rules, image.after))


def _values(rules: Rules, image: AfterImage, after: bool, before: bool) -> MatchType | None:
    """Return the change of a distinct: None if the record contributes the same values as before.

    Another record may still contribute a value that this one lost. That is not known here, so the loss counts as a change.
    """
    if before and after:
        key = rules.distinct_key
        return None if _contributed(image.before, key) == _contributed(image.after, key) else MatchType.CHANGE
    return MatchType.ADD if after else MatchType.REMOVE


def _contributed(record: Any, path: str) -> bytes:
    values, _ = reachable(record or {}, tuple(path.split(".")))
    return bson.encode({"": values}, codec_options=OPTIONS)


def _behind_offset(
    live: LiveRegistration, rules: Rules, image: AfterImage, member: bool, after: bool, before: bool | None
) -> MatchType | None:
    """Return the change of a window after an offset. Records before the window move it too when they come or go."""
    if member:
        return _member(live, rules, image, after)
    if (live.empty or rules.sort or rules.keeps_place) and _placed_as_before(rules, image):
        return None  # the record keeps its place outside the window
    if live.empty:
        # Fewer records match than are skipped: only an additional match could show.
        return MatchType.ADD if after and before is not True else None
    if before is None:
        return MatchType.MATCH
    if _beyond_both(live, rules, image, after, before):
        return None
    if before and after:
        if image.before is not None and image.after is not None and image.after_exact:
            sort = rules.sort
            stands = rules.index_order.tied.same(image.before, image.after)
            if sort and stands and sort_key(image.before, sort) == sort_key(image.after, sort):
                return None  # the record keeps its place outside the window
        return MatchType.CHANGE_INDEX
    return MatchType.ADD if after else MatchType.REMOVE
