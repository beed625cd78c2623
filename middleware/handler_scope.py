"""The ASGI scope as a handler is shown it: what is keyed, and the conditions of what is stored instead of the client's. What the
handler asks it for is noticed."""

from __future__ import annotations

from typing import Any

from middleware.asked_scope import recorded
from middleware.context import ExchangeContext
from middleware.interface import RawHeaders
from quaestor.read_path.asked_fields import AskedFields
from quaestor.read_path.forwarded_fields import shown
from quaestor.read_path.request import CONDITIONS


def handler_scope(
    context: ExchangeContext, validators: RawHeaders, asked: AskedFields, *, whole: bool
) -> dict[str, Any]:
    """The scope for a handler whose answer may be stored.

    Conditions are evaluated by the cache, against the whole answer: the handler must not reduce it to a 304. Ignored parameters,
    and what of `Forwarded` is not keyed, must not influence an answer for everybody.

    validators: fields that ask whether a stored answer still holds, in place of the client's conditions.
    asked: is told what the handler asks for.
    whole: others wait for the answer, so it must be whole even if the client has it.
    """
    scope, facts = context.scope, context.facts
    headers = scope["headers"]
    conditional = facts.if_none_match is not None or facts.if_modified_since is not None
    if (whole and conditional) or validators:
        headers = [*((name, value) for name, value in headers if name not in CONDITIONS), *validators]
    if any(name == b"forwarded" for name, _ in facts.claims):
        headers = [(name, shown(name, value)) for name, value in headers]
    return recorded(
        {**scope, "headers": headers, "query_string": context.plan.query}, asked, shared=context.shared_state
    )
