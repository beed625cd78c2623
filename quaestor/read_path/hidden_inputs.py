"""Hidden inputs: constants of a handler's queries that differ between two runs for the same request. Pure except for its memory.

Runs for one cache key see the same request. A constant that differs follows the database, if an earlier read of the
run found another result. Otherwise no write announces the difference: it is the clock in any encoding, a counter,
chance, a memo, another service. From then on an answer with that query lives no longer than its constants have been
seen to stay the same before it:

| the constants have been the same for | the answer lives |
|---|---|
| 0 s: this is their first run | it is not stored |
| less than earlier constants in this place, at most | as long again, until that time at the latest |
| longer than earlier constants in this place | as long as they exceed it |

A difference counts if nothing was read before the query was sent, or if all that was read before was the same for
certain; without certainty if it comes twice and no write explains one in between.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from quaestor.capture.run_constants import MOST_SHAPES, RunQuery, RunShape, shapes_of

HIDDEN_INPUT: Final = "hidden-input"
"""As the reason why an answer is not stored."""
MOST_KEYS: Final = 4_096
"""Keys of which the constants of the latest runs are remembered."""
MOST_ROUTES: Final = 1_024
"""Routes of which hidden inputs are remembered."""
_CERTAIN: Final = 2
"""Differences that make a hidden input where only the present state of a registration vouches for what was read before."""


class _Decided(Enum):
    """Decision about constants that differ: what may have made them differ, of what Quaestor sees."""

    NOTHING = auto()
    PROBABLY_NOTHING = auto()
    WRITES = auto()


@dataclass(slots=True)
class _Seen:
    """Constants of one shape, as the runs for one key have had them.

    first_ms: end of the run that was the first with this value.
    last_ms: begin of the latest run with it.
    longest_ms: how long an earlier value was seen to stay the same.
    """

    value: int
    first_ms: int
    last_ms: int
    longest_ms: int = 0

    def lives_ms(self, started_ms: int) -> int:
        """How long the answer of a run may live that began then; 0: not at all."""
        seen_ms = max(0, started_ms - self.first_ms)
        if seen_ms < self.longest_ms:
            return min(seen_ms, self.longest_ms - seen_ms)
        return seen_ms - self.longest_ms


@dataclass(slots=True)
class _Runs:
    """Runs for one key.

    latest_ms: begin of the latest one.
    shapes: its shapes.
    guards: registrations of the latest entry by the values of its queries.
    """

    latest_ms: int = 0
    seen: dict[int, _Seen] = field(default_factory=dict)
    shapes: frozenset[int] = frozenset()
    guards: dict[int, str] = field(default_factory=dict)


class Judged(NamedTuple):
    """Judgement of one run.

    until_ms: when its answer is over; not after the run: at once. None: it has no hidden input.
    description: of the query with it.
    differing: shapes whose constants differ from those of the run before.
    same_shapes: it has the shapes of the run before.
    """

    until_ms: int | None = None
    description: str = ""
    differing: tuple[int, ...] = ()
    same_shapes: bool = False


class HiddenInputs:
    """Hidden inputs of one process. Use from one event loop. A route is whatever hashable thing stands for it.

    dead: whether a registration is known to be dead at this moment.
    on_learned: called with each route that turns out to have a hidden input: what is stored of it lives too long.
    """

    def __init__(self, *, dead: Callable[[str], bool]) -> None:
        self.on_learned: list[Callable[[Hashable], None]] = []
        self._dead = dead
        self._runs: dict[str, _Runs] = {}
        self._routes: dict[Hashable, dict[int, int]] = {}
        """Differences by shape since a write explained one; _CERTAIN: it has a hidden input."""

    def __len__(self) -> int:
        return len(self._runs)

    def learned(self, route: Hashable) -> int:
        """Number of shapes of a route that have hidden inputs."""
        return sum(differences >= _CERTAIN for differences in self._routes.get(route, {}).values())

    def judge(
        self,
        key: str,
        route: Hashable,
        run: Sequence[RunQuery],
        *,
        started_ms: int,
        ended_ms: int,
    ) -> Judged:
        """Take in one run for a key, and judge how long its answer may live. O(queries).

        started_ms, ended_ms: the run's.
        """
        shapes = shapes_of(run)
        runs = self._runs.pop(key, None) or _Runs()
        self._runs[key] = runs
        if len(self._runs) > MOST_KEYS:
            del self._runs[next(iter(self._runs))]
        differing: list[int] = []
        same_shapes = False
        if started_ms >= runs.latest_ms:  # one that began earlier may show an older state of the database
            same_shapes, runs.shapes = runs.shapes == shapes.keys(), frozenset(shapes)
            runs.latest_ms = started_ms
            differing = _taken_in(shapes, runs, started_ms, ended_ms)
            for shape in differing:
                self._learn(route, shape, self._decided(run[: shapes[shape].before], runs))
        known = self._routes.get(route)
        bound = _bound(shapes, runs, known, started_ms) if known else Judged()
        return bound._replace(differing=tuple(differing), same_shapes=same_shapes)

    def explain(self, route: Hashable, judged: Judged, *, proved: bool) -> bool:
        """Return whether hidden inputs are all that made the queries of a run differ from those of the run before.

        proved: it is certain that no write lies between both.
        """
        for shape in judged.differing if proved else ():
            self._learn(route, shape, _Decided.NOTHING)
        known = self._routes.get(route, {})
        hidden = all(known.get(shape, 0) >= _CERTAIN for shape in judged.differing)
        return judged.same_shapes and bool(judged.differing) and hidden

    def note(self, key: str, run: Sequence[RunQuery], registrations: Sequence[str | None]) -> None:
        """Remember what guards the entry of a run.

        registrations: of its queries, in the same order; None: not known.
        """
        runs = self._runs.get(key)
        if runs is not None:
            runs.guards = {
                query.constants.value: registration
                for query, registration in zip(run[:MOST_SHAPES], registrations, strict=False)
                if query.constants is not None and registration is not None
            }

    def _learn(self, route: Hashable, shape: int, decided: _Decided) -> None:
        """Take in that the constants of a shape differ."""
        known = self._routes.pop(route, None) or {}
        before = known.get(shape, 0)
        if before < _CERTAIN:
            known.pop(shape, None)
            # A difference that a write explains is not kept: it would take the place of a hidden input.
            if decided is not _Decided.WRITES and _make_room(known):
                known[shape] = _CERTAIN if decided is _Decided.NOTHING else before + 1
        if known:
            self._routes[route] = known
        if len(self._routes) > MOST_ROUTES:
            del self._routes[next(iter(self._routes))]
        if before < _CERTAIN <= known.get(shape, 0):
            for tell in self.on_learned:
                tell(route)

    def _decided(self, before: Sequence[RunQuery], runs: _Runs) -> _Decided:
        """Tell what may have decided constants, of all that the run had read before."""
        if not before:
            return _Decided.NOTHING
        for query in before:
            registration = None if query.constants is None else runs.guards.get(query.constants.value)
            if registration is None or self._dead(registration):
                return _Decided.WRITES
        return _Decided.PROBABLY_NOTHING


def _make_room(known: dict[int, int]) -> bool:
    """Return whether a route's table takes another shape. A full table drops its oldest shape that is not certain."""
    if len(known) < MOST_SHAPES:
        return True
    undecided = next((shape for shape, differences in known.items() if differences < _CERTAIN), None)
    if undecided is None:
        return False
    del known[undecided]
    return True


def _taken_in(shapes: dict[int, RunShape], runs: _Runs, started_ms: int, ended_ms: int) -> list[int]:
    """Take in the constants of a run. Returns the shapes whose constants differ from those of the run before."""
    differing = []
    for shape, constants in shapes.items():
        seen = runs.seen.get(shape)
        if seen is None:
            if len(runs.seen) < MOST_SHAPES:
                runs.seen[shape] = _Seen(constants.value, ended_ms, started_ms)
        elif seen.value == constants.value:
            seen.last_ms = started_ms
        else:
            longest_ms = max(seen.longest_ms, seen.last_ms - seen.first_ms)
            runs.seen[shape] = _Seen(constants.value, ended_ms, started_ms, longest_ms)
            differing.append(shape)
    return differing


def _bound(shapes: dict[int, RunShape], runs: _Runs, known: dict[int, int], started_ms: int) -> Judged:
    """Judge how long the answer of a run may live, by its shapes with hidden inputs."""
    judged = Judged()
    for shape, constants in shapes.items():
        if known.get(shape, 0) < _CERTAIN:
            continue
        seen = runs.seen.get(shape)
        same = seen is not None and seen.value == constants.value
        until_ms = started_ms + (seen.lives_ms(started_ms) if seen is not None and same else 0)
        if judged.until_ms is None or until_ms < judged.until_ms:
            judged = Judged(until_ms, constants.description)
    return judged
