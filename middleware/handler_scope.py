"""The ASGI scope for a handler: its keyed parts, and the validators of a stored answer in place of the client's conditions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quaestor.middleware.context import ExchangeContext
from quaestor.middleware.interface import RawHeaders
from quaestor.model import Uncacheable
from quaestor.read_path.asked_fields import AskedFields, Conditions
from quaestor.read_path.declared_dependencies import waived
from quaestor.read_path.forwarded_fields import shown
from quaestor.read_path.request import CONDITIONS, RequestFacts


def conditional(facts: RequestFacts) -> bool:
    """Whether the client sends a condition: a question whether its copy is still valid."""
    return facts.if_none_match is not None or facts.if_modified_since is not None


def conditions(
    context: ExchangeContext, validators: RawHeaders, *, whole: bool, reading: Callable[[], bool]
) -> Conditions | None:
    """Return the view of the request's conditions for its handler; None: all conditions are visible, or none.

    No condition is visible if the route is known to read in spite of conditions, or if answers without reads are cached.
    Then the answer is stored. A proxy requests the whole from its origin for the same reason.

    reading: whether the handler has read anything yet.
    """
    facts, policy = context.facts, context.plan.policy
    if not whole or validators or not conditional(facts):
        return None
    stored_anyway = context.parts.read_path.process.settings.lifetimes.explicit or waived(policy, Uncacheable.NO_READS)
    return None if stored_anyway or context.plan.route in context.parts.asked_whole else Conditions(reading)


def handler_scope(
    context: ExchangeContext, validators: RawHeaders, asked_fields: AskedFields, *, whole: bool
) -> dict[str, Any]:
    """Return the scope for a handler whose answer may be stored.

    If the answer may be stored, the cache evaluates conditions itself, against the whole answer. The handler must not reduce
    it to a 304, so it sees no conditions, or only as `asked_fields.conditions` allows. Ignored parameters, and the unkeyed
    parts of `Forwarded`, must not influence an answer for all clients.

    validators: fields that ask whether a stored answer is still valid, in place of the client's conditions.
    asked_fields: notes what the handler looks up, and holds the conditions it may see.
    whole: other requests wait for the answer, so it must be whole even if the client has it.
    """
    scope, facts = context.scope, context.facts
    headers = scope["headers"]
    if (whole and conditional(facts) and asked_fields.conditions is None) or validators:
        headers = [*((name, value) for name, value in headers if name not in CONDITIONS), *validators]
    if facts.claims and any(name == b"forwarded" for name, _ in facts.claims):
        headers = [(name, shown(name, value)) for name, value in headers]
    return {**scope, "headers": headers, "query_string": context.plan.query}
