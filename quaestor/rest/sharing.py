"""With whom the cache may share the router's answers: everybody if nobody is told apart, otherwise equal principals."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from quaestor.caching import Declaration, cached, per_user, private, public
from quaestor.read_path.policy import Representation
from quaestor.rest.access import Principal

WhoAsks = Callable[[Request], Principal | Awaitable[Principal]]


def declaration(who_asks: WhoAsks | None, representation: Representation) -> Declaration:
    """What every reading route of a router declares.

    Who asks is asked again by the cache, before a hit and without a place to wait: with a coroutine function nothing is shared.
    """
    if who_asks is None:
        scope = public()
    elif inspect.iscoroutinefunction(who_asks) or inspect.iscoroutinefunction(getattr(who_asks, "__call__", None)):  # noqa: B004
        scope = private()
    else:
        scope = per_user(by=_audience(who_asks))
    return cached(scope=scope, query="all", representation=representation)


def _audience(who_asks: WhoAsks) -> Callable[[Mapping[str, Any]], str | None]:
    def by(scope: Mapping[str, Any]) -> str | None:
        """The same text for principals to whom the same rules apply; None for requests that will be refused."""
        try:
            principal = who_asks(Request(dict(scope)))
        except HTTPException:
            return None
        if not isinstance(principal, Principal):
            if inspect.iscoroutine(principal):
                principal.close()
            return None
        return "superuser" if principal.superuser else json.dumps(principal.names)

    return by
