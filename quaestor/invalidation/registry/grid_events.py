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
