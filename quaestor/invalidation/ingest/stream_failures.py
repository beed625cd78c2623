"""Failures of a change stream: their kinds, by their meaning for its position, and their number."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from pymongo.errors import OperationFailure

from quaestor.errors import DatabaseError
from quaestor.tasks import pause_after

_POSITION_LOST: Final = frozenset({136, 260, 280, 286, 40647})
"""CappedPositionLost, InvalidResumeToken, ChangeStreamFatalError, ChangeStreamHistoryLost, not a resume token."""
_EVENT_TOO_LARGE: Final = 10334
_PATIENCE: Final = 5
"""Consecutive refusals of a position, for any reason, after which it is given up."""
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
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


class StreamFailures:
    """Failures of one follower since its stream was last open.

    slim: the next stream is read without images, because an event with images was too large.
    refused: consecutive refusals of the position.
    """

    def __init__(self) -> None:
        self.slim = False
        self.refused = 0
        self._failed = 0

    def opened(self) -> None:
        """Begin again: the stream is open."""
        self.refused = self._failed = 0

    def pause_s(self) -> float:
        """Count a failure, and return the seconds to wait after it."""
        self._failed += 1
        return pause_after(self._failed, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)

    def position_lost(self, error: Exception) -> bool:
        """Whether the position is to be given up: at once if the server reports it as lost, else after repeated refusals."""
        failure = stream_failure(error)
        if failure is StreamFailure.EVENT_TOO_LARGE and not self.slim:
            self.slim = True
            return False
        if failure is not StreamFailure.UNRELATED:
            self.refused += 1
        return failure is StreamFailure.POSITION_LOST or self.refused >= _PATIENCE
