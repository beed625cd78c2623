"""The ASGI scope as a handler is shown it: what is keyed, and the conditions of what is stored instead of the client's."""

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
    """Whether the client has asked whether what it has still holds."""
    return facts.if_none_match is not None or facts.if_modified_since is not None


def conditions(
    context: ExchangeContext, validators: RawHeaders, *, whole: bool, reading: Callable[[], bool]
) -> Conditions | None:
    """The request's conditions as the handler may see them; None: all of them, or none at all.

    Who is known to read in spite of them, or is cached without having read anything, is shown none: its answer is stored. The
    origin behind a proxy is asked for the whole for the same reason.

    reading: whether the handler has read anything yet.
    """
    facts, policy = context.facts, context.plan.policy
    if not whole or validators or not conditional(facts):
        return None
    stored_anyway = context.read_path.settings.lifetimes.explicit or waived(policy, Uncacheable.NO_READS)
    return None if stored_anyway or context.plan.route in context.asked_whole else Conditions(reading)


def handler_scope(
    context: ExchangeContext, validators: RawHeaders, asked: AskedFields, *, whole: bool
) -> dict[str, Any]:
    """The scope for a handler whose answer may be stored.

    If the answer may be stored, conditions are evaluated by the cache, against the whole of it: its handler must not reduce it to
    a 304, so it is shown none, or as `asked.conditions` says. Ignored parameters, and what of `Forwarded` is not keyed, must not
    influence an answer for everybody.

    validators: fields that ask whether a stored answer still holds, in place of the client's conditions.
    asked: what is to be noticed of it: which conditions the handler may see.
    whole: others wait for the answer, so it must be whole even if the client has it.
    """
    scope, facts = context.scope, context.facts
    headers = scope["headers"]
    if (whole and conditional(facts) and asked.conditions is None) or validators:
        headers = [*((name, value) for name, value in headers if name not in CONDITIONS), *validators]
    if facts.claims and any(name == b"forwarded" for name, _ in facts.claims):
        headers = [(name, shown(name, value)) for name, value in headers]
    return {**scope, "headers": headers, "query_string": context.plan.query}
