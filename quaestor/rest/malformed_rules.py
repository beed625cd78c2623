"""Report of records that are unusable because their own rules are malformed: to the operator, never in an answer."""

from __future__ import annotations

import time
from typing import Final

from quaestor.observability.telemetry import Telemetry

_AGAIN_S: Final = 60.0
_MOST_COLLECTIONS: Final = 1_024


class MalformedRules:
    """Reports of one router, at most once a minute for each collection, for any number of requests.

    field: of the records, with their rules.
    telemetry: None: nothing is reported, and no record is searched.
    """

    def __init__(self, telemetry: Telemetry | None, field: str | None) -> None:
        self._telemetry = telemetry
        self._field = field
        self._reported_s: dict[str, float] = {}
        self._lists_s: dict[str, float] = {}

    def report(self, collection: str) -> None:
        """Report a record of this collection."""
        if self._telemetry is None or not _due(self._reported_s, collection):
            return
        reason = f"{self._field} of a record is malformed: only superusers may use the record"
        self._telemetry.failure("records", "rest.record_rules_malformed", reason, collection=collection)

    def list_is_due(self, collection: str) -> bool:
        """Whether to search the records that a list of this collection leaves out: once a minute, as it costs a query."""
        return self._telemetry is not None and self._field is not None and _due(self._lists_s, collection)


def _due(last_s: dict[str, float], collection: str) -> bool:
    """Whether a report is due for this collection; if so, note it. Bounded: names may come from strangers."""
    now_s = time.monotonic()
    if now_s - last_s.get(collection, -_AGAIN_S) < _AGAIN_S:
        return False
    if len(last_s) >= _MOST_COLLECTIONS:
        last_s.clear()
    last_s[collection] = now_s
    return True
