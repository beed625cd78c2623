"""Threads of one process's registry: they send registrations, read notifications and read contributors."""

from __future__ import annotations

from functools import partial

from quaestor.invalidation.registry.contributor_reads import ContributorReads
from quaestor.invalidation.registry.notification_handler import NotificationHandler
from quaestor.invalidation.registry.notification_reader import NotificationReader
from quaestor.invalidation.registry.query_sender import QuerySender
from quaestor.ports import EventLayer
from quaestor.realtime.snapshots import Snapshots
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.runtime.supervision.supervisor import KeptThread


class RegistryThreads:
    """Supervised threads of one registry.

    handler: acts on notifications in the thread that reads them.
    reader: reads notifications from its own position.
    """

    def __init__(
        self,
        layer: EventLayer,
        process: ProcessContext,
        *,
        sender: QuerySender,
        handler: NotificationHandler,
        contributor_reads: ContributorReads,
    ) -> None:
        self.handler = handler
        self.reader = NotificationReader(layer, process, taker=handler)
        self._layer = layer
        self._supervisor = process.supervisor
        self._sender = sender
        self._contributor_reads = contributor_reads
        self._threads: list[KeptThread] = []
        self._stopped = False

    def start(self) -> None:
        """Start sender and reader. After a stop, a layer in memory is empty, so the former state is void."""
        if self._stopped and self._layer.immediate:
            self.handler.reset("started again after a stop")
            self.reader.forget()
        self._stopped = False
        self._threads = [
            self._supervisor.thread("sender", self._sender.run, wake=self._sender.end),
            self._supervisor.thread("notifications", self.reader.run, wake=self.reader.end),
        ]

    def read_contributors(self, snapshots: Snapshots) -> None:
        """Start the thread that reads contributors; stop() ends it too."""
        reads = self._contributor_reads
        self._threads.append(self._supervisor.thread("contributors", partial(reads.run, snapshots), wake=reads.end))

    def stop(self) -> None:
        """End all threads. Blocks until they have ended."""
        self._stopped = True
        for thread in self._threads:
            thread.tell()
        for thread in self._threads:
            thread.stop()
