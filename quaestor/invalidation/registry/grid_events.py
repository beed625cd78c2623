"""Events of the grid for the other parts of an app process: the registry publishes, subscribed listeners receive.

The events are created before all parts, so that neither publisher nor listener needs to know the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from quaestor.model import GridShape, Invalidated

Event = TypeVar("Event")


class Subject(Generic[Event]):
    """One kind of event and its listeners. A call notifies them in the order of their subscription.

    An exception of a listener reaches the publisher, and the later listeners are then not notified.
    """

    def __init__(self) -> None:
        self._listeners: list[Callable[[Event], None]] = []

    def subscribe(self, listener: Callable[[Event], None]) -> None:
        """Notify this listener too from now on, in the publisher's thread."""
        self._listeners.append(listener)

    def __call__(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)


def _nothing(shape: GridShape) -> None:
    """Do nothing about another generation of the grid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequences:
    """Consequences of notifications for the other parts of a process, all called in the thread that reads notifications.

    invalidated: called with every batch of `Invalidated`, after its registrations were marked dead.
    reset: called when no stored answer can be trusted: the event layer lost its data, notifications were missed, or the grid
        was re-partitioned. Nothing is served until the registry resumes.
    succeeded: called when another generation of the grid is in use; may raise EventLayerError, which causes a reset.
    """

    invalidated: Callable[[Sequence[Invalidated]], None]
    reset: Callable[[str], None]
    succeeded: Callable[[GridShape], None] = _nothing


@dataclass(frozen=True, slots=True)
class GridEvents:
    """Kinds of events. Listeners are called in the thread that reads notifications, and must not block.

    invalidated: a batch of registrations, already marked dead.
    reset: no stored answer can be trusted any more, and the reason. From any thread.
    succeeded: another generation of the grid is in use. Listeners may raise EventLayerError.
    """

    invalidated: Subject[Sequence[Invalidated]] = field(default_factory=Subject)
    reset: Subject[str] = field(default_factory=Subject)
    succeeded: Subject[GridShape] = field(default_factory=Subject)

    @property
    def consequences(self) -> Consequences:
        """The events, as a registry publishes them."""
        return Consequences(invalidated=self.invalidated, reset=self.reset, succeeded=self.succeeded)
