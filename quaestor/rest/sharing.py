"""Sharing of the router's answers by the cache: with everybody if nobody is told apart, otherwise with equal principals."""

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
"""Where in the scope the cache leaves for whom it looked; what authentication behind it adds to the scope is not known there."""
WhoAsks = Callable[[Request], Principal | Awaitable[Principal]]


def declaration(
    who_asks: WhoAsks | None, representation: Representation, reads: Sequence[str] | None = None
) -> Declaration:
    """Declaration of every reading route of a router: implied, so that it gives way to whatever stands around the router.

    Who asks is asked again by the cache, before a hit and without a place to wait: with a coroutine function nothing is shared.

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
    """Text that is the same for principals to whom the same rules apply."""
    return "superuser" if principal.superuser else json.dumps(principal.names)


def agrees(scope: Mapping[str, Any], principal: Principal) -> bool:
    """Whether the cache, if there is one, took the request for this principal's."""
    told = scope.get(AUDIENCE)
    return told is None or told == audience(principal)


def _audience(who_asks: WhoAsks) -> Callable[[Mapping[str, Any]], str | None]:
    def by(scope: Mapping[str, Any]) -> str | None:
        """Whom a request is for; None for requests that will be refused."""
        try:
            principal = who_asks(Request(dict(scope)))
        except HTTPException:
            return None
        if not isinstance(principal, Principal):
            if inspect.iscoroutine(principal):
                principal.close()
            return None
        found = audience(principal)
        if isinstance(scope, MutableMapping):
            scope[AUDIENCE] = found
        return found

    return by
