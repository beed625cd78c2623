"""Report of records that nobody may use because their own rules are malformed: to whoever runs this, in nobody's answer."""

from __future__ import annotations

import time
from typing import Final

from quaestor.observability.telemetry import Telemetry

_AGAIN_S: Final = 60.0
_MOST_COLLECTIONS: Final = 1_024


class MalformedRules:
    """Reports of one router, each at most once a minute for each collection, however often strangers ask.

    field: of the records, that holds their rules.
    telemetry: None: nobody is told, and nothing is looked for.
    """

    def __init__(self, telemetry: Telemetry | None, field: str | None) -> None:
        self._telemetry = telemetry
        self._field = field
        self._told_s: dict[str, float] = {}
        self._lists_s: dict[str, float] = {}

    def found(self, collection: str) -> None:
        """Report a record of this collection."""
        if self._telemetry is None or not _due(self._told_s, collection):
            return
        reason = f"{self._field} of a record is malformed: nobody but superusers may use the record"
        self._telemetry.failure("records", "rest.record_rules_malformed", reason, collection=collection)

    def list_is_due(self, collection: str) -> bool:
        """Whether what a list of this collection leaves out is to be looked at now: once a minute, since it is a query more."""
        return self._telemetry is not None and self._field is not None and _due(self._lists_s, collection)


def _due(last_s: dict[str, float], collection: str) -> bool:
    """Whether it is time again for this collection, which it then was. Bounded: names may be a stranger's."""
    now_s = time.monotonic()
    if now_s - last_s.get(collection, -_AGAIN_S) < _AGAIN_S:
        return False
    if len(last_s) >= _MOST_COLLECTIONS:
        last_s.clear()
    last_s[collection] = now_s
    return True
