"""The ASGI scope as a handler is shown it: what is keyed, and the conditions of what is stored instead of the client's."""

from __future__ import annotations

from middleware.context import ExchangeContext
from middleware.interface import RawHeaders, Scope
from quaestor.read_path.forwarded_fields import shown
from quaestor.read_path.request import CONDITIONS


def handler_scope(context: ExchangeContext, validators: RawHeaders, *, whole: bool) -> Scope:
    """The scope for a handler whose answer may be stored; the request's own if nothing has to be kept from it.

    Conditions are evaluated by the cache, against the whole answer: the handler must not reduce it to a 304. Ignored parameters,
    and what of `Forwarded` is not keyed, must not influence an answer for everybody.

    validators: fields that ask whether a stored answer still holds, in place of the client's conditions.
    whole: others wait for the answer, so it must be whole even if the client has it.
    """
    scope, facts = context.scope, context.facts
    headers = scope["headers"]
    conditional = facts.if_none_match is not None or facts.if_modified_since is not None
    if (whole and conditional) or validators:
        headers = [*((name, value) for name, value in headers if name not in CONDITIONS), *validators]
    if any(name == b"forwarded" for name, _ in facts.claims):
        headers = [(name, shown(name, value)) for name, value in headers]
    if headers is scope["headers"] and context.plan.query == scope["query_string"]:
        return scope
    return {**scope, "headers": headers, "query_string": context.plan.query}
