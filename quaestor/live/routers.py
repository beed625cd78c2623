"""Shared parts of the routers that serve results: the check of their path, and declarations of their endpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from starlette.responses import Response

from quaestor.caching import Declaration
from quaestor.errors import ConfigurationError

Endpoint = Callable[..., Awaitable[Response]]


def require_path(path: str) -> None:
    """Require a path at which a router can be mounted. Raises ConfigurationError."""
    if not path.startswith("/") or path.endswith("/"):
        raise ConfigurationError(f"path={path!r}: begin with '/', and end without it")


def declared(endpoint: Endpoint, declaration: Declaration) -> Endpoint:
    """Return an endpoint with a declaration of its own; methods of several routers share their function."""

    @wraps(endpoint)
    async def handler(*arguments: Any, **named: Any) -> Response:
        return await endpoint(*arguments, **named)

    return declaration(handler)
