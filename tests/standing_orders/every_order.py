"""Every order of the steps of a few parts, up to the order of steps that do not touch the same thing.

Two orders are the same for every part if one becomes the other by exchanging independent neighbours. Steps are
independent if they belong to different parts and touch nothing in common, or only read it. Of all equal orders one is
run (sleep sets: Godefroid, "Partial-Order Methods for the Verification of Concurrent Systems", chapter 5). A result
that depends only on the things that each part has seen, and in which order, is so seen in all its forms. Steps that are
independent of all that can ever follow are not put off at all (persistent sets of one step).

A world is begun anew for each order and led to the point where the orders part: it need not be copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

Step = tuple[object, ...]
Touched = frozenset[tuple[object, bool]]
"""The things that a step touches, and whether it changes each."""


class World(Protocol):
    """Deterministic: the same steps lead to the same state."""

    def enabled(self) -> list[Step]:
        """The steps that can be taken now. One stays possible until its part takes another."""

    def eager(self, steps: list[Step]) -> Step | None:
        """One that is independent of all other steps that may ever be taken before it."""

    def do(self, step: Step) -> Touched:
        """Take it."""


W = TypeVar("W", bound=World)


def independent(step: Touched, other: Touched) -> bool:
    """Whether it makes no difference which comes first."""
    return not any(thing == same and (writes or rewrites) for thing, writes in step for same, rewrites in other)


@dataclass
class Orders:
    """Counts what was run: orders to the end, those given up because they are the same as another, steps."""

    complete: int = 0
    same: int = 0
    steps: int = 0
    longest: int = 0
    path: list[Step] = field(default_factory=list)

    def explore(self, begin: Callable[[], W]) -> Iterator[W]:
        """The world at the end of each order, when no step is possible any more. `path`: the steps that led there."""
        asleep: dict[Step, Touched] = {}
        pending: list[tuple[list[Step], dict[Step, Touched]]] = [([], asleep)]
        while pending:
            prefix, asleep = pending.pop()
            world = begin()
            self.path = []
            for step in prefix:
                self._take(world, step)
            while True:
                steps = world.enabled()
                if not steps:
                    self.complete += 1
                    self.longest = max(self.longest, len(self.path))
                    yield world
                    break
                eager = world.eager(steps)
                choices = [step for step in (steps if eager is None else [eager]) if step not in asleep]
                if not choices:
                    self.same += 1
                    break
                first, *others = choices
                before = list(self.path)
                touched = self._take(world, first)
                if others:
                    pending.append((before, asleep | {first: touched}))
                asleep = {step: other for step, other in asleep.items() if independent(touched, other)}

    def _take(self, world: World, step: Step) -> Touched:
        self.steps += 1
        self.path.append(step)
        return world.do(step)
