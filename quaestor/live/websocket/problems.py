"""Problems of subscriptions and messages, as the protocol sends them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from starlette.exceptions import HTTPException

from quaestor.errors import QueryError, SubscriptionError
from quaestor.rest.problems import Problem

_MOST: Final = 400
_LATER: Final = "the result cannot be followed at the moment; subscribe again later"
_NEVER: Final = "MongoDB refuses the query, its result is too large, or delivery 'exact' is not possible"

_ENDS: Final = {401: "expired", 403: "rights", 404: "rights", 413: "too-large", 422: "unfollowable"}


class ProtocolError(Exception):
    """Problem of one subscription or one message. The socket goes on.

    status: HTTP status.
    message: what was wrong, with which value, and what to do. Names of servers and other users never appear in it.
    id: the subscription; None: the socket.
    """

    def __init__(self, status: int, message: str, *, id: str | None = None) -> None:  # noqa: A002 - the wire's name
        super().__init__(message)
        self.status = status
        self.message = message[:_MOST]
        self.id = id

    @property
    def end(self) -> str:
        """One of vocabularies.LIVE_ENDS, for a problem that ends a subscription."""
        return _ENDS.get(self.status, "unavailable")

    @property
    def reason(self) -> str:
        """Name of the status."""
        try:
            return HTTPStatus(self.status).phrase
        except ValueError:
            return "Error"

    @classmethod
    def of(cls, error: Exception, *, id: str | None = None) -> ProtocolError:  # noqa: A002 - the wire's name
        """The problem that an error means to a client."""
        match error:
            case ProtocolError():
                return cls(error.status, error.message, id=id or error.id)
            case HTTPException():
                return cls(error.status_code, str(error.detail), id=id)
            case Problem():
                return cls(error.status, error.detail, id=id)
            case QueryError():
                return cls(400, str(error), id=id)
            case SubscriptionError() if not error.retryable:
                return cls(422, _NEVER, id=id)
            case _:
                return cls(503, _LATER, id=id)
