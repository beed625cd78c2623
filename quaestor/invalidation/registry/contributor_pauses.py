"""Pauses between a registration and the reading of its contributors, by query.

After a pause the answer has been sent, and a registration that dies at once costs no read. But a registration may die during
its pause, and the next result of the query may be the same. The registration then died for nothing; contributors would have
saved it. From then on the contributors of that query are read without a pause.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import bson
from xxhash import xxh3_128_digest

from quaestor.model import Registration
from quaestor.query.encoding import OPTIONS

PAUSE_MS: Final = 100
_MOST_QUERIES: Final = 10_000


class ContributorPauses:
    """Pauses of one process. O(1) a call; O(members) for a result with members. `of` from one thread, `read` from another."""

    def __init__(self) -> None:
        self._unread: dict[str, Hashable] = {}
        self._hasty: dict[str, None] = {}

    def of(self, registration: Registration, *, renewed: bool) -> int:
        """Return the pause before the contributors of a new registration are read, in ms.

        renewed: the result was read again after a write, and was the same.
        """
        query_id = registration.query_id
        result = _result(registration)
        if renewed or self._unread.get(query_id) == result:
            _keep(self._hasty, query_id, None)
        _keep(self._unread, query_id, result)
        return 0 if query_id in self._hasty else PAUSE_MS

    def read(self, registration: Registration) -> None:
        """Note that the contributors of a registration were read while it lived."""
        self._unread.pop(registration.query_id, None)


def _result(registration: Registration) -> Hashable:
    members = {"": registration.members}
    return registration.digest, xxh3_128_digest(bson.encode(members, codec_options=OPTIONS))


def _keep(known: dict[str, Any], query_id: str, value: Any) -> None:
    """Remember a value of a query; if there are too many, forget the query named longest ago."""
    known.pop(query_id, None)
    known[query_id] = value
    if len(known) > _MOST_QUERIES:
        known.pop(next(iter(known)), None)
