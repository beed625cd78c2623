"""Kinds of failure of a change stream, by what they say about the position that it was opened at."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from pymongo.errors import OperationFailure

from quaestor.errors import DatabaseError

_POSITION_LOST: Final = frozenset({136, 260, 280, 286, 40647})
"""CappedPositionLost, InvalidResumeToken, ChangeStreamFatalError, ChangeStreamHistoryLost, not a resume token."""
_EVENT_TOO_LARGE: Final = 10334
NOT_ALLOWED: Final = frozenset({13, 18, 8000})
"""Unauthorized, AuthenticationFailed, Atlas' own."""


class StreamFailure(Enum):
    """One kind of failure."""

    UNRELATED = auto()
    """It says nothing about the position: the server is away, or does not let this user read."""
    REFUSED = auto()
    """The server did not go on from the position. Other causes are possible, if it happens once or twice."""
    POSITION_LOST = auto()
    """The server says that it has no such place in its history any more."""
    EVENT_TOO_LARGE = auto()
    """The next event, with its images, is larger than a document may be."""


def stream_failure(error: Exception) -> StreamFailure:
    """The kind of failure that this error is."""
    if isinstance(error, DatabaseError):
        return StreamFailure.REFUSED
    code = error.code if isinstance(error, OperationFailure) else None
    if code is None or code in NOT_ALLOWED:
        return StreamFailure.UNRELATED
    if code == _EVENT_TOO_LARGE:
        return StreamFailure.EVENT_TOO_LARGE
    return StreamFailure.POSITION_LOST if code in _POSITION_LOST else StreamFailure.REFUSED
