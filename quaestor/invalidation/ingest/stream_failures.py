"""Kinds of failure of a change stream, by their meaning for its position."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from pymongo.errors import OperationFailure

from quaestor.errors import DatabaseError

_POSITION_LOST: Final = frozenset({136, 260, 280, 286, 40647})
"""CappedPositionLost, InvalidResumeToken, ChangeStreamFatalError, ChangeStreamHistoryLost, not a resume token."""
_EVENT_TOO_LARGE: Final = 10334
NOT_ALLOWED: Final = frozenset({13, 18, 8000})
"""Unauthorized, AuthenticationFailed, and Atlas's own code."""


class StreamFailure(Enum):
    """Kind of failure of a change stream."""

    UNRELATED = auto()
    """Unrelated to the position: the server is away, or does not let this user read."""
    REFUSED = auto()
    """Refusal to continue from the position. Once or twice, other causes are possible."""
    POSITION_LOST = auto()
    """Loss of the position: the server's history no longer contains it."""
    EVENT_TOO_LARGE = auto()
    """Next event too large: with its images it exceeds the size of a document."""


def stream_failure(error: Exception) -> StreamFailure:
    """Return the kind of failure of this error."""
    if isinstance(error, DatabaseError):
        return StreamFailure.REFUSED
    code = error.code if isinstance(error, OperationFailure) else None
    if code is None or code in NOT_ALLOWED:
        return StreamFailure.UNRELATED
    if code == _EVENT_TOO_LARGE:
        return StreamFailure.EVENT_TOO_LARGE
    return StreamFailure.POSITION_LOST if code in _POSITION_LOST else StreamFailure.REFUSED
