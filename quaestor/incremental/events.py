"""Events of a maintained result for subscribers, and their application to a client's own list.

Source: Wingerath's thesis, sections 3.2 and 5.4: match types, index, indirect events.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from quaestor.incremental.changes import same_row
from quaestor.model import MatchType, Version, WriteKind
from quaestor.query.bson_order import order_key


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultEvent:
    """Step from the former result to the present one. Steps are applied in their order.

    key: the record's `_id`; of a group its id, of an unwound record (`_id`, element), of a distinct value the value.
    document: the row as the result shows it; for `remove` as last known; for count the number.
    index: its position after this event; None for `remove` and in unordered results.
    previous_index: its position just before; None for `add` and in unordered results.
    operation: the write to this very record. None for indirect events (another record pushed it out or pulled it in), for
        renewals, and where rows are not records (groups).
    version: version of the write; 0 for renewals.
    """

    match_type: MatchType
    key: Any
    document: Any
    index: int | None = None
    previous_index: int | None = None
    operation: WriteKind | None = None
    version: Version = 0


class Shown(NamedTuple):
    """Row of a result as it is shown.

    key: its identity, as an order key.
    id: identity for people and clients.
    document: the row as shown.
    """

    key: Hashable
    id: Any
    document: Any


def replay(result: Sequence[tuple[Any, Any]], events: Iterable[ResultEvent]) -> list[tuple[Any, Any]]:
    """Apply events to a client's own list of (key, document). O(length) for each event.

    Raises ValueError if an event does not fit the list: the events start from another result.
    """
    rows = [(order_key(key), key, document) for key, document in result]
    for event in events:
        key = order_key(event.key)
        position = next((place for place, row in enumerate(rows) if row[0] == key), None)
        if (position is None) != (event.match_type is MatchType.ADD):
            raise ValueError(f"{event.match_type.value} of {event.key!r}, which is {'not ' * (position is None)}there")
        if position is not None:
            if event.previous_index not in (None, position):
                raise ValueError(f"{event.key!r} is at {position}, not at {event.previous_index}")
            del rows[position]
        if event.match_type is not MatchType.REMOVE:
            into = event.index if event.index is not None else len(rows) if position is None else position
            rows.insert(into, (key, event.key, event.document))
    return [(key, document) for _, key, document in rows]


def differences(old: Sequence[Shown], new: Sequence[Shown], *, ordered: bool) -> list[ResultEvent]:
    """Return the events that lead from one result to the other: removals, changed content, moves and additions.

    The events are as few as possible: rows that keep their relative order do not move. O(n log n), and O(n) for each move.
    """
    remaining = {row.key for row in new}
    known = {row.key: row for row in old}
    events = [
        ResultEvent(
            match_type=MatchType.REMOVE, key=row.id, document=row.document, previous_index=place if ordered else None
        )
        for place, row in reversed(list(enumerate(old)))
        if row.key not in remaining
    ]
    if not ordered:
        for row in new:
            if row.key not in known:
                events.append(ResultEvent(match_type=MatchType.ADD, key=row.id, document=row.document))
            elif not same_row(known[row.key].document, row.document):
                events.append(ResultEvent(match_type=MatchType.CHANGE, key=row.id, document=row.document))
        return events
    working = [row.key for row in old if row.key in remaining]
    resting = _longest_ordered(working, [row.key for row in new])
    for place, row in enumerate(new):
        if row.key in resting:
            if not same_row(known[row.key].document, row.document):
                index = working.index(row.key)
                events.append(_at(MatchType.CHANGE, row, index, index))
            continue
        previous = None
        if row.key in known:
            previous = working.index(row.key)
            del working[previous]
        index = 0 if place == 0 else working.index(new[place - 1].key) + 1
        working.insert(index, row.key)
        events.append(_at(MatchType.ADD if previous is None else MatchType.CHANGE_INDEX, row, index, previous))
    return events


def _at(match_type: MatchType, row: Shown, index: int, previous: int | None) -> ResultEvent:
    return ResultEvent(match_type=match_type, key=row.id, document=row.document, index=index, previous_index=previous)


def _longest_ordered(old: Sequence[Hashable], new: Sequence[Hashable]) -> set[Hashable]:
    """Return a largest set of keys that stand in the same order in both (patience sorting)."""
    place = {key: position for position, key in enumerate(old)}
    tails: list[int] = []
    ends: list[Hashable] = []
    previous: dict[Hashable, Hashable | None] = {}
    for key in new:
        position = place.get(key)
        if position is None:
            continue
        pile = bisect_left(tails, position)
        previous[key] = ends[pile - 1] if pile else None
        tails[pile : pile + 1] = [position]
        ends[pile : pile + 1] = [key]
    kept: set[Hashable] = set()
    last: Hashable | None = ends[-1] if ends else None
    while last is not None:
        kept.add(last)
        last = previous[last]
    return kept
