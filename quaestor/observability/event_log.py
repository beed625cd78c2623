"""Log events: constant dotted names with fields, and one count for each failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import structlog

from quaestor.observability import vocabularies
from quaestor.observability.families import Families
from quaestor.observability.hooks import FailureSeen, Hooks
from quaestor.observability.tracing import Tracing

_MOST_LASTING = 64


class EventLog:
    """Events and failures by name. No bodies, no secrets, no raw keys; each carries the trace id of its request. May be used from
    several threads.

    failures: counts by part.
    lasting: failures that last until somebody mends them, for `quaestor status`; in order, each once.
    hooks: observers of this Quaestor.
    """

    def __init__(self, families: Families, tracing: Tracing) -> None:
        self.failures = families.counters("failures", "failures of parts we depend on", part=vocabularies.PARTS)
        self.lasting: list[str] = []
        self.hooks = Hooks(self._observer_failed)
        self._tracing = tracing
        self._log = structlog.get_logger("quaestor")

    def event(self, name: str, **fields: Any) -> None:
        """Log an ordinary event, e.g. event("engine.started", mode="embedded")."""
        self._say(self._log.info, name, fields)

    def failure(
        self, part: str, name: str, error: BaseException | str, *, lasting: bool = False, **fields: Any
    ) -> None:
        """Report the failure of a part we depend on: one count, one log line, observers told.

        part: one of vocabularies.PARTS.
        lasting: it is there until somebody mends it.
        """
        if lasting and str(error) not in self.lasting and len(self.lasting) < _MOST_LASTING:
            self.lasting.append(str(error))
        self._count(part, name, error, fields)
        if self.hooks.failures:
            self.hooks.failures.tell(FailureSeen(part=part, name=name, error=str(error), fields=fields))

    def _observer_failed(self, error: Exception) -> None:
        self._count(
            "observer", "hooks.observer_failed", repr(error), {}
        )  # no observer is told: it may be the one that fails

    def _count(self, part: str, name: str, error: BaseException | str, fields: Mapping[str, Any]) -> None:
        self.failures.labels(part).inc()
        self._say(self._log.warning, name, {"part": part, "error": str(error), **fields})

    def _say(self, say: Callable[..., object], name: str, fields: Mapping[str, Any]) -> None:
        with suppress(OSError, ValueError):  # whoever read the log is gone, or it is closed: that stops nothing else
            say(name, **fields, **self._trace())

    def _trace(self) -> dict[str, str]:
        trace_id = self._tracing.trace_id()
        return {} if trace_id is None else {"trace_id": trace_id}
