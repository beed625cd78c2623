"""Log events: constant dotted names with fields, and one count for each failure."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from quaestor.first_use import FirstUse
from quaestor.observability import plain_log, vocabularies
from quaestor.observability.families import Families
from quaestor.observability.hooks import FailureSeen, Hooks
from quaestor.observability.tracing import Tracing

if TYPE_CHECKING:
    import structlog
else:
    structlog = FirstUse("structlog")

_MOST_LASTING = 64
_AGAIN_S: Final = 60.0
"""Time after which a lasting failure is logged again."""
_OVER_S: Final = 10.0
"""Silence after which a failure is over, and the next one is new. Parts are retried more often."""
_MOST_REPEATED: Final = 256
_VARYING: Final = re.compile(r"\b(?:[0-9a-f]{8,}|\d+(?:\.\d+)?)")


@dataclass(slots=True)
class _Repeated:
    """Lasting failure. Times in seconds of the monotonic clock.

    unlogged: number of occurrences since it was logged.
    """

    logged_s: float
    seen_s: float
    unlogged: int = 0


class EventLog:
    """Events and failures by name. No bodies, no secrets, no raw keys. Each carries the trace id of its request. Thread-safe.

    failures: counts by part.
    lasting: failures that last until an operator mends them, for `quaestor status`; in order, each once.
    hooks: observers of this Quaestor.
    """

    def __init__(self, families: Families, tracing: Tracing) -> None:
        self.failures = families.counters("failures", "failures of parts we depend on", part=vocabularies.PARTS)
        self.lasting: list[str] = []
        self.hooks = Hooks(self._observer_failed)
        self._tracing = tracing
        self._repeated: dict[tuple[str, str], _Repeated] = {}
        self._lock = threading.Lock()

    @cached_property
    def _log(self) -> Any:
        """Logger of structlog, configured by the application."""
        return structlog.get_logger("quaestor")

    def event(self, name: str, **fields: Any) -> None:
        """Log an ordinary event, e.g. event("engine.started", mode="embedded")."""
        self._say("info", name, fields)

    def failure(
        self, part: str, name: str, error: BaseException | str, *, lasting: bool = False, **fields: Any
    ) -> None:
        """Report the failure of a part we depend on: count it, log it at most once a minute, notify observers.

        part: one of vocabularies.PARTS.
        lasting: the failure lasts until an operator mends it.
        """
        if lasting and str(error) not in self.lasting and len(self.lasting) < _MOST_LASTING:
            self.lasting.append(str(error))
        self._count(part, name, error, fields)
        if self.hooks.failures:
            self.hooks.failures.tell(FailureSeen(part=part, name=name, error=str(error), fields=fields))

    def _observer_failed(self, error: Exception) -> None:
        self._count(
            "observer", "hooks.observer_failed", repr(error), {}
        )  # no observer is notified: it may be the failing one

    def _count(self, part: str, name: str, error: BaseException | str, fields: Mapping[str, Any]) -> None:
        self.failures.labels(part).inc()
        unlogged = self._unlogged(name, f"{error} {fields}")
        if unlogged is not None:
            repeated = {"repeated": unlogged} if unlogged else {}
            self._say("warning", name, {"part": part, "error": str(error), **fields, **repeated})

    def _unlogged(self, name: str, text: str) -> int | None:
        """Return the occurrences since the failure was last logged; None: it lasts, and was logged less than a minute ago."""
        now_s = time.monotonic()
        with self._lock:
            key = name, _VARYING.sub("0", text)
            before = self._repeated.pop(key, None)
            if before is None or now_s - before.seen_s > _OVER_S:
                self._repeated[key] = _Repeated(now_s, now_s)
                if len(self._repeated) > _MOST_REPEATED:
                    self._repeated.pop(next(iter(self._repeated)))
                return 0
            self._repeated[key] = before
            before.seen_s = now_s
            if now_s - before.logged_s < _AGAIN_S:
                before.unlogged += 1
                return None
            unlogged, before.unlogged, before.logged_s = before.unlogged, 0, now_s
            return unlogged

    def _say(self, level: str, name: str, fields: Mapping[str, Any]) -> None:
        with suppress(
            OSError, ValueError
        ):  # the reader of the log is gone, or the log is closed: that stops nothing else
            if plain_log.suffices():
                plain_log.write(level, name, {**fields, **self._trace()})
            else:
                getattr(self._log, level)(name, **fields, **self._trace())

    def _trace(self) -> dict[str, str]:
        trace_id = self._tracing.trace_id()
        return {} if trace_id is None else {"trace_id": trace_id}
