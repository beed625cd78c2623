"""History of one followed query: its newest events, for clients that come back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from quaestor.live.websocket.events import SharedMatch
from quaestor.live.websocket.positions import Position


class History:
    """Newest events of a query, bounded by number and by size.

    position: of the result now.
    begun: before the oldest known event.
    looked_back_to: sequence of the oldest position whose events have been asked for.
    looking_back: held while older events are read.
    """

    def __init__(self, position: Position, *, most_events: int, most_characters: int) -> None:
        self.position = position
        self._most_events = most_events
        self._most_characters = most_characters
        self._events: deque[tuple[SharedMatch, int]] = deque()
        """Events, and the characters that each was counted with."""
        self._characters = 0
        self._dropped: Position | None = None
        self.begun = position
        self.looked_back_to = position.sequence
        self.looking_back = asyncio.Lock()
        self._ends: dict[str, tuple[int, int]] = {}
        """Last position here of each epoch before the present one, while events of it are kept."""

    def add(self, match: SharedMatch, characters: int) -> None:
        """Add the newest event.

        characters: of its text.
        """
        self.advance(match.position)
        self._events.append((match, characters))
        self._characters += characters
        while len(self._events) > self._most_events or self._characters > self._most_characters:
            dropped, counted = self._events.popleft()
            self._characters -= counted
            self._dropped = dropped.position

    def advance(self, position: Position) -> None:
        """Take the position behind a change, with or without an event."""
        if position.epoch != self.position.epoch:
            self._ends[self.position.epoch] = _order(self.position)
            kept = {match.position.epoch for match, _ in self._events} | {self.position.epoch}
            self._ends = {epoch: end for epoch, end in self._ends.items() if epoch in kept}
        self.position = position

    def may_look_back(self, position: Position) -> bool:
        """Whether the events behind a position are older than the kept ones, and have not been asked for."""
        return position.epoch == self.begun.epoch and position.sequence < self.looked_back_to and self._dropped is None

    def prepend(self, begun: Position, matches: Sequence[SharedMatch]) -> None:
        """Add events that lead from an older position to `begun`, if there is room for all of them."""
        counted = [(match, match.characters) for match in matches]
        characters = sum(each for _, each in counted)
        if (
            self._dropped is None
            and len(self._events) + len(counted) <= self._most_events
            and self._characters + characters <= self._most_characters
        ):
            self._events.extendleft(reversed(counted))
            self._characters += characters
            self.begun = begun

    def missed(self, token: str) -> list[SharedMatch] | None:
        """Events behind the position that a token names; None if they are not all kept.

        O(number kept).
        """
        position = Position.parse(token)
        if position is None:
            return None
        if position == self.position:
            return []
        if not self._covers(position):
            return None
        return [match for match, _ in self._events if self._behind(match, position)]

    def _covers(self, position: Position) -> bool:
        oldest = self._dropped or self.begun
        if position.epoch == self.position.epoch:
            end = _order(self.position)
        elif position.epoch in self._ends:
            end = self._ends[position.epoch]
        else:
            return False
        begun = _order(oldest) if oldest.epoch == position.epoch else (0, 0)
        return begun <= _order(position) <= end

    def _behind(self, match: SharedMatch, position: Position) -> bool:
        """Whether the event came after the position. Epochs grow."""
        return (match.position.epoch, _order(match.position)) > (position.epoch, _order(position))


_COMPLETE = 1 << 60
"""A complete change stands behind every event in it."""


def _order(position: Position) -> tuple[int, int]:
    return position.sequence, position.event or _COMPLETE
