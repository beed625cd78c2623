"""The transition table of one exchange: (state, event) -> state.

The parts of an exchange report events, and the table decides the next state. A hit in memory and a request that bypasses
the cache never become an exchange.

    - RECEIVED -> LOOKING -> SERVED: a hit
    - RECEIVED -> LOOKING -> RUNNING -> REGISTERING -> KEEPING -> SERVED: a miss that was stored
    - RECEIVED -> LOOKING -> RUNNING -> SERVED: an older answer instead of an error
    - ... -> WITHHELD: the handler's answer, not to be kept

Every doubt leads to WITHHELD. Only KEPT leads from RUNNING to SERVED with the handler's answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum, auto


class State(StrEnum):
    """The stage that a request has reached."""

    RECEIVED = auto()
    LOOKING = auto()
    """Looks into the stores, and for a request that runs the handler for the same key."""
    WAITING = auto()
    """Waits behind another request for the same key."""
    RUNNING = auto()
    """The handler runs; its reads are recorded, its answer is held back."""
    REGISTERING = auto()
    """The answer is complete; its queries are being activated."""
    KEEPING = auto()
    """Dependency index, sketch and store receive the entry."""
    SERVED = auto()
    """Answered from an entry, which may be kept."""
    WITHHELD = auto()
    """Answered with the handler's own answer, uncached."""
    REFUSED = auto()
    """Answered without an entry and without a handler (504 to only-if-cached)."""
    FAILED = auto()
    """The handler raised, or left without an answer."""


class Event(StrEnum):
    """An event that leads a request from one state to the next."""

    PASSED_BY = auto()
    """The request does not concern the cache, or the grid cannot guard anything now."""
    KEYED = auto()
    FOUND = auto()
    ABSENT = auto()
    BUSY = auto()
    """Another request runs the handler for the same key."""
    FORBIDDEN = auto()
    """Absent, and the client accepts a cached answer only."""
    LEADER_STORED = auto()
    LEADER_REFUSED = auto()
    LEADER_LEFT = auto()
    UNSTORABLE = auto()
    """Status, headers, size or pace of the answer forbid storage."""
    ANSWERED = auto()
    UNGUARDED = auto()
    """No write would reveal a change of this answer, or the grid does not guard it."""
    REGISTERED = auto()
    DIED = auto()
    """Invalidated before it could be handed out."""
    PART_FAILED = auto()
    """Index, sketch or store did not answer."""
    KEPT = auto()
    SERVED_ON_ERROR = auto()
    """The handler failed, and the older answer may be sent instead."""
    MISLED = auto()
    """The handler's 304 was about another answer than the stored one: the handler must return the whole."""
    RAISED = auto()


TERMINAL = frozenset({State.SERVED, State.WITHHELD, State.REFUSED, State.FAILED})

TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (State.RECEIVED, Event.PASSED_BY): State.WITHHELD,
    (State.RECEIVED, Event.KEYED): State.LOOKING,
    (State.LOOKING, Event.FOUND): State.SERVED,
    (State.LOOKING, Event.ABSENT): State.RUNNING,
    (State.LOOKING, Event.BUSY): State.WAITING,
    (State.LOOKING, Event.PASSED_BY): State.WITHHELD,
    (State.LOOKING, Event.FORBIDDEN): State.REFUSED,
    (State.WAITING, Event.LEADER_STORED): State.LOOKING,
    (State.WAITING, Event.LEADER_LEFT): State.LOOKING,
    (State.WAITING, Event.LEADER_REFUSED): State.RUNNING,
    (State.RUNNING, Event.UNSTORABLE): State.WITHHELD,
    (State.RUNNING, Event.ANSWERED): State.REGISTERING,
    (State.RUNNING, Event.RAISED): State.FAILED,
    (State.RUNNING, Event.SERVED_ON_ERROR): State.SERVED,
    (State.RUNNING, Event.MISLED): State.LOOKING,
    (State.REGISTERING, Event.UNGUARDED): State.WITHHELD,
    (State.REGISTERING, Event.REGISTERED): State.KEEPING,
    (State.REGISTERING, Event.RAISED): State.FAILED,
    (State.KEEPING, Event.DIED): State.WITHHELD,
    (State.KEEPING, Event.PART_FAILED): State.WITHHELD,
    (State.KEEPING, Event.KEPT): State.SERVED,
    (State.KEEPING, Event.RAISED): State.FAILED,
}


def step(state: State, event: Event) -> State:
    """Return the next state. Raises KeyError for a step that is not in the table: a fault in the program."""
    return TRANSITIONS[state, event]
