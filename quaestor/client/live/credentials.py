"""Credentials of the clients of live queries."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

Credentials = str | Callable[[], str | Awaitable[str]] | None
"""Token of the client, or a function that gives the present one before each connection or request."""


async def present_token(credentials: Credentials) -> str | None:
    """Return the present token; None: the client has none."""
    token = credentials() if callable(credentials) else credentials
    return await token if inspect.isawaitable(token) else token
