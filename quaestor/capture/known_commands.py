"""Cache of interpreted commands: a handler sends the same ones again and again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import bson
from bson.errors import BSONError

from quaestor.capture.commands import Understood, understand
from quaestor.capture.snapshot import UuidRepresentation

_MAX_COMMANDS: Final = 1_000
_MAX_BYTES: Final = 1_024
"""Longest command that is remembered, in bytes."""
_OF_THE_CALL: Final = frozenset({"lsid", "$clusterTime"})
"""Fields that differ in every call, and that understand() ignores."""


class KnownCommands:
    """Cache of understand(), by the bytes that the server receives. Thread-safe.

    A command is not remembered if it may differ next time, or if its bytes do not determine its meaning. Not remembered are
    commands with a point in time (BSON is coarser than Python), and commands that must not be cached. The same holds for values
    that only the client's own codec can write, native UUIDs among them.
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
