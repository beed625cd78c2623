"""City of the demo: officers who move, tweets, and the direct computation of the alerts. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

SIZE_M: Final = 1_000.0
RADIUS_M: Final = 150.0
OFFICERS: Final = 12
FOLLOWERS: Final = 250
"""Subscribers of each officer's alerts: one group."""
_STEP_M: Final = 40.0
_HATEFUL: Final = 0.3
_TEXTS: Final = ("go home", "get out", "you people", "never again", "not here")

Place = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Tweet:
    """Tweet at a place."""

    tid: int
    text: str
    is_hateful: bool
    place: Place

    def record(self) -> dict[str, Any]:
        """Return the tweet as a record of the dataset."""
        return {"tid": self.tid, "text": self.text, "hateful": self.is_hateful, "location": list(self.place)}


class City:
    """Officers and tweets from a seed: the same seed always gives the same city.

    places: place of each officer, by number.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.places: dict[int, Place] = {oid: self._anywhere() for oid in range(1, OFFICERS + 1)}
        self._tweets = 0

    def move(self, part: float = 1.0) -> list[dict[str, Any]]:
        """Move a part of the officers; return their new positions as records."""
        moved = [oid for oid in self.places if self._random.random() < part]
        for oid in moved:
            angle = self._random.uniform(0, 2 * math.pi)
            x, y = self.places[oid]
            self.places[oid] = (_inside(x + _STEP_M * math.cos(angle)), _inside(y + _STEP_M * math.sin(angle)))
        return positions({oid: self.places[oid] for oid in moved})

    def tweets(self, number: int) -> list[Tweet]:
        """Return new tweets."""
        made = []
        for _ in range(number):
            self._tweets += 1
            is_hateful = self._random.random() < _HATEFUL
            text = self._random.choice(_TEXTS) if is_hateful else "nice day"
            made.append(Tweet(self._tweets, text, is_hateful, self._anywhere()))
        return made

    def _anywhere(self) -> Place:
        return (round(self._random.uniform(0, SIZE_M), 1), round(self._random.uniform(0, SIZE_M), 1))


def positions(places: Mapping[int, Place]) -> list[dict[str, Any]]:
    """Return the places of officers as records of the dataset."""
    return [{"oid": oid, "location": list(place)} for oid, place in places.items()]


def alerts(tweets: Iterable[Tweet], places: Mapping[int, Place]) -> list[tuple[int, int]]:
    """Return (officer, tweet) of each hateful tweet within the radius of an officer, computed pair by pair."""
    return sorted(
        (oid, tweet.tid)
        for tweet in tweets
        for oid, place in places.items()
        if tweet.is_hateful and math.dist(tweet.place, place) <= RADIUS_M
    )


def _inside(value: float) -> float:
    return round(min(SIZE_M, max(0.0, value)), 1)
