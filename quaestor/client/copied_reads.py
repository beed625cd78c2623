"""Reads through copies, as far as both transports are alike: the rules' state, and what is done without waiting."""

from __future__ import annotations

import logging

from quaestor.client.exchange import Exchanges
from quaestor.client.levels import Level
from quaestor.client.messages import Server
from quaestor.client.steps import Counts

_log = logging.getLogger("quaestor.client")


class CopiedReads:
    """Reads of one server through copies; the base of both transports. Fields: see QuaestorTransport."""

    def __init__(self, server: str, level: Level | None, memory_bytes: int, sketch: str) -> None:
        self._server = Server(server, sketch)
        self._level = level or Level()
        self._exchanges = Exchanges(self._level, memory_bytes)
        self._warned = False

    @property
    def counts(self) -> Counts:
        """Its work, counted."""
        return self._exchanges.counts

    def forget_private(self) -> None:
        """Drop the answers that were made for one user: call it when another one takes over."""
        self._exchanges.forget_private()

    def _warn(self) -> None:
        """Say, once, why there is no sketch to rely on."""
        if not self._warned:
            self._warned = True
            why = self._exchanges.sketches.why
            _log.warning("client.no_sketch_to_rely_on: every answer is revalidated with the server: %s", why)
