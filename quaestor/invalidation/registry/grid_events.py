"""Events of the grid for the other parts of an app process: published by the registry, heard by whoever has subscribed.

Made before all of them, so that neither the publisher nor a listener needs to know the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from quaestor.model import GridShape, Invalidated

Event = TypeVar("Event")


class Subject(Generic[Event]):
    """One kind of event and its listeners. Calling it tells them, in the order in which they subscribed.

    What a listener raises goes to the publisher; those after it are not told then.
    """

    def __init__(self) -> None:
        self._listeners: list[Callable[[Event], None]] = []

    def subscribe(self, listener: Callable[[Event], None]) -> None:
        """Tell this one too from now on, in the publisher's thread."""
        self._listeners.append(listener)

    def __call__(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)


def _nothing(shape: GridShape) -> None:
    """Do nothing about another generation of the grid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequences:
    """Consequences of notifications for the other parts of a process, all of them called in the thread that reads notifications.

    invalidated: called with every batch of `Invalidated`, after they were marked dead.
    reset: called when no stored answer can be trusted any more: the event layer lost its data, notifications were missed,
        the grid was re-partitioned. Nothing is served until the registry resumes.
    succeeded: called when another generation of the grid is relied on. It may raise EventLayerError, which is a reset.
    """

    invalidated: Callable[[Sequence[Invalidated]], None]
    reset: Callable[[str], None]
    succeeded: Callable[[GridShape], None] = _nothing


@dataclass(frozen=True, slots=True)
class GridEvents:
    """Kinds of events. Listeners are called in the thread that reads notifications, and must not block.

    invalidated: a batch of registrations, which are marked dead already.
    reset: nothing that is stored can be trusted any more, and why. From any thread.
    succeeded: another generation of the grid is relied on. Listeners may raise EventLayerError.
    """

    invalidated: Subject[Sequence[Invalidated]] = field(default_factory=Subject)
    reset: Subject[str] = field(default_factory=Subject)
    succeeded: Subject[GridShape] = field(default_factory=Subject)

    @property
    def consequences(self) -> Consequences:
        """The events, as a registry publishes them."""
        return Consequences(invalidated=self.invalidated, reset=self.reset, succeeded=self.succeeded)
