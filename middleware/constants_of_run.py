"""Context of a run's constants: the memory of the process, the route, and the request's own text."""

from __future__ import annotations

from quaestor.capture import ConstantsOfRun
from quaestor.capture.seen_constants import AskedText
from quaestor.middleware.context import ExchangeContext
from quaestor.read_path.asked_fields import AskedFields


def constants_of_run(context: ExchangeContext, asked_fields: AskedFields, text: str) -> ConstantsOfRun:
    """Return the context that separates hidden constants of a run from values of its request.

    asked_fields: the fields that the handler looked up; their values are keyed.
    text: the path and the keyed part of the query.
    """
    names, everything = asked_fields.names, asked_fields.everything
    values = [
        value.decode("latin-1")
        for name, value in (context.scope["headers"] if names or everything else ())
        if everything or name in names
    ]
    return ConstantsOfRun(
        context.parts.read_path.run_capture.seen_constants, context.plan.route, AskedText(text, *values)
    )
