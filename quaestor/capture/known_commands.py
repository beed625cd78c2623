"""Cache of commands that were understood lately: a handler sends the same ones again and again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import bson
from bson.errors import BSONError

from quaestor.capture.commands import Understood, understand
from quaestor.capture.snapshot import UuidRepresentation

_MAX_COMMANDS: Final = 1_000
_MAX_BYTES: Final = 1_024
"""Bytes of a command that is remembered."""
_OF_THE_CALL: Final = frozenset({"lsid", "$clusterTime"})
"""What every call says anew, and understand() takes no notice of."""


class KnownCommands:
    """Cache of understand(), by what the server is sent. Thread-safe.

    Not remembered is whatever is not the same each time, or is not told by its bytes alone: what names a point in time (BSON
    keeps less of it than Python has), what must not be cached, and values that only the client's own codec can write, native
    UUIDs among them.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, bytes], Understood] = {}

    def understand(
        self, name: str, command: Mapping[str, Any], database: str, uuid_representation: UuidRepresentation
    ) -> Understood:
        """See commands.understand()."""
        try:
            sent = bson.encode({field: command[field] for field in command if field not in _OF_THE_CALL})
        except (BSONError, TypeError, ValueError, OverflowError):
            return understand(name, command, database, uuid_representation)
        identity = (name, database, sent)
        known = self._known.get(identity)
        if known is None:
            known = understand(name, command, database, uuid_representation)
            if known.query is not None and not (known.reasons or known.instants or len(sent) > _MAX_BYTES):
                if len(self._known) >= _MAX_COMMANDS:
                    self._known.clear()
                self._known[identity] = known
        return known
