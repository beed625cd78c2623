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
        self._jumps: deque[tuple[_Place, _Place]] = deque()
        """Places before and behind each jump of the numbering: a full result replaced the changes in between. Other processes may
        have shown positions inside a jump. Nothing here leads on from such a position."""

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
            self._forget_to(dropped.position)

    def advance(self, position: Position) -> None:
        """Take the position behind a change, with or without an event."""
        before, self.position = self.position, position
        if position.epoch == before.epoch and position.sequence <= before.sequence + 1:
            return
        self._jumps.append((_place(before), _place(position)))
        if len(self._jumps) > self._most_events:
            self._events.clear()
            self._characters = 0
            self._forget_to(before)

    def _forget_to(self, position: Position) -> None:
        """Note that no event up to a position is kept any more."""
        self._dropped = position
        while self._jumps and self._jumps[0][1] <= _place(position):
            self._jumps.popleft()

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
        place = _place(position)
        return [match for match, _ in self._events if _place(match.position) > place]

    def _covers(self, position: Position) -> bool:
        oldest, place = self._dropped or self.begun, _place(position)
        if not _place(oldest) <= place <= _place(self.position):
            return False
        if position.event:  # another process, or another follower here, may have divided the change in another way
            return position == oldest or any(match.position == position for match, _ in self._events)
        return not any(before < place < behind for before, behind in self._jumps)


_Place = tuple[str, int, int]
_COMPLETE = 1 << 60
"""A complete change stands behind every event in it."""


def _place(position: Position) -> _Place:
    """The place of a position among all positions of a query. Epochs grow."""
    return position.epoch, position.sequence, position.event or _COMPLETE
