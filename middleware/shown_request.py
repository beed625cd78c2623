"""Shown request: the scope that a handler receives, with the fields that it looks up recorded."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from operator import is_

from quaestor.middleware.asked_scope import hand_back, recorded
from quaestor.middleware.context import ExchangeContext
from quaestor.middleware.handler_scope import conditional, conditions, handler_scope
from quaestor.middleware.handovers import Missed
from quaestor.read_path.asked_fields import AskedFields


class ShownRequest:
    """Request as one handler run sees it.

    asked: fields that the handler has looked up.
    given: scope with the conditions of the run.
    scope: the same, recorded; it is the handler's.
    tracked: whether look-ups are recorded. If not, no answer of the run is stored.
    surroundings: context variables at the beginning of the run.
    """

    def __init__(self, context: ExchangeContext, missed: Missed, *, reading: Callable[[], bool]) -> None:
        validators = [] if missed.stale is None else missed.stale.conditions()
        whole = missed.flight is not None
        self.asked = AskedFields(forwards=context.plan.forwards)
        self.asked.conditions = conditions(context, validators, whole=whole, reading=reading)
        self.given = handler_scope(context, validators, self.asked, whole=whole)
        self.tracked = bool(validators) or conditional(context.facts) or missed.key not in context.parts.never_stored
        self.scope = recorded(self.given, self.asked, shared=context.shared_state) if self.tracked else dict(self.given)
        self.surroundings = contextvars.copy_context()
        self._handed_back: tuple[object, ...] = ()
        self._withheld = whole or bool(validators)
        self._came = context.scope

    @property
    def conditions_withheld(self) -> bool:
        """Whether the handler looked up conditions that it was not shown."""
        shown = self.asked.conditions
        return self._withheld and self.asked.conditional if shown is None else shown.withheld

    def hand_back(self, *, changed: bool) -> None:
        """Give the scope back to the caller.

        changed: with the handler's changes.
        """
        scope, state = self.scope, dict.get(self.scope, "state") or {}
        now = (*dict.keys(scope), *dict.values(scope), *dict.keys(state), *dict.values(state))
        # The second time is after the handler's end, and hardly ever has anything changed since its answer.
        if len(now) != len(self._handed_back) or not all(map(is_, now, self._handed_back)):
            hand_back(scope, self._came, changed=changed)
            self._handed_back = now
