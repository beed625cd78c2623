"""Positions of followed results, which clients send back to go on where they were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Position(NamedTuple):
    """Position of a result behind one event.

    epoch, sequence: of the change that the event belongs to, equal in every process (see `Step`).
    event: number of the event in its change, from 1, if further events of the change follow; 0: the change is complete.
    follower: names the process's own follower of the query, for positions inside a change; "" for complete ones. Only this
        follower knows the events behind such a position.
    """

    epoch: str
    sequence: int
    event: int = 0
    follower: str = ""

    def behind_each(self, events: int, follower: str) -> Iterator[Position]:
        """The positions behind each of some events that lead to this position, the place of a complete change.

        follower: which alone knows the positions between the events.
        """
        for number in range(1, events):
            yield self._replace(event=number, follower=follower)
        if events:
            yield self

    @property
    def token(self) -> str:
        """The position as text."""
        inside = f"/{self.event}/{self.follower}" if self.event else ""
        return f"{self.epoch}/{self.sequence}{inside}"

    @classmethod
    def parse(cls, token: str) -> Position | None:
        """Position in a token; None if it is not one."""
        parts = token.split("/")
        if len(parts) not in (2, 4) or not all(part.isascii() for part in parts):
            return None
        numbers = [parts[1], parts[2] if len(parts) == 4 else "0"]
        if not all(number.isdigit() and len(number) <= 18 for number in numbers):
            return None
        return cls(parts[0], int(numbers[0]), int(numbers[1]), parts[3] if len(parts) == 4 else "")
