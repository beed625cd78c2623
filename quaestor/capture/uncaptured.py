"""Commands of every client: the uncaptured ones of a recorded request, and writes, also after the request was answered.

Every client that pymongo makes from now on has the listeners registered for the whole process, before its own. One of them
notes each command of a recorded request; the capture of the sending client claims it at once, with the same event.
An unclaimed command comes from a client whose reads are not registered, and whose writes may go unnoticed.

Requests of pymongo's automatic encryption to a mongocryptd do not count: it holds no data, and only marks the fields to encrypt.
"""

from __future__ import annotations

import threading
from typing import Final
from weakref import WeakSet

from pymongo import monitoring
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from quaestor.capture.commands import HARMLESS
from quaestor.capture.context import heard
from quaestor.capture.listener_failures import ListenerFailures, distrust_request
from quaestor.capture.write_log import writes_records

_FOR_MONGOCRYPTD: Final = frozenset({"isRemoteSchema", "csfleEncryptionSchemas"})
"""Fields that libmongocrypt adds to a command for a mongocryptd; a mongod refuses a command with them."""
_registering = threading.Lock()
_registered = False
_failures: WeakSet[ListenerFailures] = WeakSet()
"""Failures of every capture of this process."""


class _EveryCommand(CommandListener):
    """Listener for every client of this process. Outside a recorded request it costs one look at a context variable."""

    def started(self, event: CommandStartedEvent) -> None:
        """See pymongo.monitoring. Never raises."""
        try:
            recorder, writes = heard()
            if writes is not None and not writes.attempted and writes_records(event):
                writes.attempt()
            if recorder is None or event.command_name.lower() in HARMLESS:
                return
            if _FOR_MONGOCRYPTD.isdisjoint(event.command):
                recorder.sent(event)
        except Exception as error:
            distrust_request(error)
            for failures in list(_failures):
                failures.note(error)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """See pymongo.monitoring."""

    def failed(self, event: CommandFailedEvent) -> None:
        """See pymongo.monitoring."""


def notice_uncaptured(failures: ListenerFailures) -> None:
    """Note the uncaptured commands of every client that is made after the first call. Further calls change nothing else.

    failures: of a capture; receives the failures of this listener too.
    """
    global _registered
    with _registering:
        _failures.add(failures)
        if not _registered:
            monitoring.register(_EveryCommand())
            _registered = True
