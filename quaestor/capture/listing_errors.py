"""Errors of commands that list collections and indexes, as messages with the fitting remedy."""

from __future__ import annotations

from typing import Final

from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError

from quaestor.errors import DatabaseError

_REFUSED: Final = frozenset({13, 18})
"""Codes of mongod: Unauthorized, AuthenticationFailed."""


def listing_error(what: str, error: PyMongoError, *, privilege: str) -> DatabaseError:
    """Return the error for a failed listing.

    what: the failed action and its consequence, for people.
    privilege: needed by the command; named where mongod refuses the user.
    """
    if isinstance(error, ConnectionFailure):
        reason = str(error).partition(" (configured timeouts")[0].partition(", Timeout:")[0]
        return DatabaseError(f"MongoDB cannot be reached: {reason}; {what}")
    remedy = f"; the user needs the {privilege} privilege"
    refused = isinstance(error, OperationFailure) and error.code in _REFUSED
    return DatabaseError(f"{what}: {error}{remedy if refused else ''}")
