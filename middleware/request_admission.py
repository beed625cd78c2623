"""Admission of requests: whether the cache may answer a request, and under which key. Decided by the declarations of its route
and the request's fields. Pure, except for the call of the route's own `by`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from quaestor.middleware.interface import Scope
from quaestor.middleware.routes import Plan
from quaestor.policy import RoutePolicy, Sharing
from quaestor.read_path.key import Target
from quaestor.read_path.request import RequestFacts
from quaestor.read_path.variant_key import selection

OnError = Callable[[str], None]


def wanted(
    plan: Plan, facts: RequestFacts, scope: Scope, *, body: bytes | None = None, on_error: OnError
) -> tuple[Target | None, str]:
    """Return the target of a request; or None, and why the request bypasses the cache.

    body: of a request that is keyed by it.
    on_error: receives the reason why the route's `by` cannot be used.
    """
    policy = plan.policy
    if policy.closed:
        return None, "bypass" if policy.bypass else "private-route"
    if plan.barred:
        return None, plan.barred
    credentials = None
    if policy.sharing is Sharing.UNDECLARED:
        credentials = facts.bypass if facts.personal else "credentials" if somebody(scope) else None
    unkeyed_body = "request-body" if facts.has_body and body is None else None
    if reason := credentials or facts.barred or unkeyed_body:
        return None, reason
    if plan.target is None:
        return None, "unkeyed"
    if plan.simple and body is None:
        return plan.target, ""
    audience = _audience(policy, scope, on_error) if policy.personal else None
    if policy.personal and audience is None:
        return None, "scope"
    appended = selection(policy, scope["headers"], audience=audience, method=scope["method"], body=body)
    if appended is None:
        return None, "unkeyed"
    return replace(plan.target, key=plan.target.key + appended), ""


def somebody(scope: Scope) -> bool:
    """Whether a middleware around this one, or the server, has identified the client by other means than the request's fields,
    such as a client certificate. True if uncertain."""
    if "user" in scope and (user := scope["user"]) is not None:
        try:
            return bool(getattr(user, "is_authenticated", True))
        except Exception:
            return True
    if "extensions" not in scope or not scope["extensions"]:
        return False
    tls = scope["extensions"].get("tls")
    return bool(tls and (tls.get("client_cert_name") or tls.get("client_cert_chain")))


def _audience(policy: RoutePolicy, scope: Scope, on_error: OnError) -> str | None:
    """Return the audience that the route's `by` names for a request; None if it names none, or fails."""
    assert policy.by is not None
    try:
        said = policy.by(scope)
    except Exception as error:
        on_error(repr(error))
        return None
    if said is None or isinstance(said, str):
        return said or None
    on_error(f"{type(said).__name__} is no text")
    return None
