"""Sharing of the router's answers by the cache: with all clients if all are anonymous, otherwise among equal principals."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from quaestor.caching import Declaration, cached, per_user, private, public, with_implied_scope
from quaestor.policy import Representation
from quaestor.rest.access import Principal

AUDIENCE = "quaestor.rest.audience"
"""Key in the scope for the audience that the cache used. Additions of later authentication to the scope are unknown there."""
WhoAsks = Callable[[Request], Principal | Awaitable[Principal]]


def declaration(
    who_asks: WhoAsks | None, representation: Representation, reads: Sequence[str] | None = None
) -> Declaration:
    """Return the declaration of every reading route of a router: implied, so that other dependencies may override it.

    The cache calls `who_asks` itself, before a hit and without awaiting: with a coroutine function nothing is shared.

    reads: see per_user().
    """
    if who_asks is None:
        scope = public()
    elif inspect.iscoroutinefunction(who_asks) or inspect.iscoroutinefunction(getattr(who_asks, "__call__", None)):  # noqa: B004
        scope = private()
    else:
        scope = per_user(by=_audience(who_asks), reads=reads)
    return with_implied_scope(cached(scope=scope, query="all", sort_query=True, representation=representation))


def audience(principal: Principal) -> str:
    """Return a text that is equal for principals under the same rules."""
    return "superuser" if principal.superuser else json.dumps(principal.names)


def agrees(scope: Mapping[str, Any], principal: Principal) -> bool:
    """Whether the cache, if there is one, used the same principal for the request."""
    declared = scope.get(AUDIENCE)
    return declared is None or declared == audience(principal)


def _audience(who_asks: WhoAsks) -> Callable[[Mapping[str, Any]], str | None]:
    def by(scope: Mapping[str, Any]) -> str | None:
        """Return the audience of a request; None for requests that will be refused."""
        try:
            principal = who_asks(Request(dict(scope)))
        except HTTPException:
            return None
        if not isinstance(principal, Principal):
            if inspect.iscoroutine(principal):
                principal.close()
            return None
        name = audience(principal)
        if isinstance(scope, MutableMapping):
            scope[AUDIENCE] = name
        return name

    return by
