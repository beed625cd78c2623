"""The log of one request's writes, as far as it shows the version of its newest write.

A command counts when its reply reports a change. A command without a change has no event in the change stream, and a wait for one
would be in vain. Writes of a transaction count when it is committed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from bson import Timestamp

from quaestor.cluster_time import version_of
from quaestor.model import Version

if TYPE_CHECKING:
    from pymongo.monitoring import CommandStartedEvent, CommandSucceededEvent

_COUNTED: Final[Mapping[str, tuple[str, ...]]] = {
    "insert": ("n",),
    "update": ("nModified", "upserted"),
    "delete": ("n",),
    "bulkwrite": ("nInserted", "nModified", "nUpserted", "nDeleted"),
}
"""Fields of a reply, one of which is not zero and not empty if the command changed something (commands in lower case)."""
_DROP_DATABASE: Final = "dropdatabase"
_WHOLE_COLLECTIONS: Final = frozenset(
    {
        "create", "drop", _DROP_DATABASE, "renamecollection", "collmod", "converttocapped", "clonecollectionascapped",
        "mapreduce", "applyops",
    }
)  # fmt: skip
_FIND_AND_MODIFY: Final = "findandmodify"
_AGGREGATE: Final = "aggregate"
_COMMIT: Final = "committransaction"
_ABORT: Final = "aborttransaction"
_ENDS: Final = frozenset({_COMMIT, _ABORT})
_WRITING: Final = frozenset({*_COUNTED, *_WHOLE_COLLECTIONS, _FIND_AND_MODIFY, *_ENDS})
_WRITING_STAGES: Final = frozenset({"$out", "$merge"})


class WriteLog:
    """Log of one request's writes. Several threads may feed it at once.

    version: the operationTime of the newest write that was acknowledged and changed something; 0: there was none.
    undated: there was a write without a known time: unacknowledged, or by a server without operationTime.
    attempted: a command that writes records was sent, by any client and to any cluster, whatever its outcome.
    on_attempt: called once, at the first attempt, in the thread that sends the command. Never raises.
    """

    __slots__ = ("_lock", "_pending", "_uncommitted", "attempted", "on_attempt", "undated", "version")

    def __init__(self) -> None:
        self.attempted = False
        self.on_attempt: Callable[[], None] | None = None
        self.version: Version = 0
        self.undated = False
        self._uncommitted = False
        self._pending: dict[Any, bool] = {}
        self._lock = threading.Lock()

    @property
    def wrote(self) -> bool:
        """Whether any write is known to have happened."""
        return self.undated or self.version > 0

    def attempt(self) -> None:
        """Note that a command that writes records was sent."""
        with self._lock:
            notify, self.on_attempt = self.on_attempt, None
            self.attempted = True
        if notify is not None:
            notify()

    def started(self, event: CommandStartedEvent) -> None:
        """Note that a command that writes was sent."""
        with self._lock:
            self._pending[event.connection_id, event.request_id] = event.command.get("autocommit") is False

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """Note the reply to a command that was noted; others are ignored. Never raises."""
        if not self._pending:
            return
        with self._lock:
            in_transaction = self._pending.pop((event.connection_id, event.request_id), None)
            if in_transaction is not None:
                with suppress(Exception):  # a reply that cannot be interpreted shows no write
                    self._replied(event.command_name.lower(), event.reply, in_transaction)

    def failed(self, request: tuple[Any, int]) -> None:
        """Note that the command behind `request` failed: a repetition by the driver is a separate command.

        request: its connection and its number.
        """
        with self._lock:
            self._pending.pop(request, None)

    def _replied(self, kind: str, reply: Mapping[str, Any], in_transaction: bool) -> None:
        if kind == _ABORT:
            self._uncommitted = False
        elif kind == _COMMIT:
            if self._uncommitted:
                self._date(reply)
            self._uncommitted = False
        elif in_transaction:
            self._uncommitted = self._uncommitted or _changed(kind, reply)
        elif "operationTime" not in reply or _changed(kind, reply):
            self._date(reply)

    def _date(self, reply: Mapping[str, Any]) -> None:
        at = reply.get("operationTime")
        if isinstance(at, Timestamp):
            self.version = max(self.version, version_of(at))
        else:
            self.undated = True


def is_write(event: CommandStartedEvent) -> bool:
    """Whether a command writes, or ends a transaction."""
    kind = event.command_name.lower()
    if kind != _AGGREGATE:
        return kind in _WRITING
    pipeline: Any = event.command.get("pipeline")
    return bool(pipeline) and not _WRITING_STAGES.isdisjoint(pipeline[-1])


def writes_records(event: CommandStartedEvent) -> bool:
    """Whether a command writes records; ending a transaction and setting up indexes do not count."""
    return is_write(event) and event.command_name.lower() not in _ENDS


def _changed(kind: str, reply: Mapping[str, Any]) -> bool:
    if kind == _FIND_AND_MODIFY:
        return bool((reply.get("lastErrorObject") or {}).get("n"))
    if kind == _DROP_DATABASE:
        return "dropped" in reply  # present only if the database existed
    counted = _COUNTED.get(kind)
    return counted is None or any(reply.get(field) for field in counted)
