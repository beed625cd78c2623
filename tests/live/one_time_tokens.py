"""Credentials that the server takes once: each long poll that waits ends with 401."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request

from quaestor.rest.access import Principal


class OneTimeTokens:
    """`principal` of an endpoint that takes each token once. A long poll asks again behind its wait, and is refused there.

    used: tokens that were taken.
    refused: number of requests that were refused.
    """

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.refused = 0

    def __call__(self, request: Request) -> Principal:
        """Return the principal of a new token. Raises HTTPException (401) for a token that was used."""
        token = request.headers.get("authorization", "")
        if token in self.used:
            self.refused += 1
            raise HTTPException(401, "the token is over")
        self.used.add(token)
        return Principal(user="ann")
