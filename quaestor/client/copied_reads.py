"""Reads through copies, as far as both transports are alike: the state of the rules, and the steps without waiting."""

from __future__ import annotations

import logging

import httpx

from quaestor.client.exchange import Exchanges
from quaestor.client.flights import Flight, Flights
from quaestor.client.levels import EXTENSION, FROM_CACHE, Level, of_request
from quaestor.client.messages import Server, moment
from quaestor.client.steps import Ask, Counts

LEAST_DELTA_S = 3.0
"""A smaller Δ leaves no time in which a copy may be used."""
_log = logging.getLogger("quaestor.client")


class CopiedReads:
    """Reads of one server through copies; the base of both transports. Fields: see QuaestorTransport."""

    def __init__(self, server: str, level: Level | None, memory_bytes: int, sketch: str) -> None:
        self._server = Server(server, sketch)
        self._level = level or Level()
        self._exchanges = Exchanges(self._level, memory_bytes)
        self._flights = Flights()
        self._warned = self._warned_of_delta = False
        self._warn_of_delta(self._level.delta_s)

    @property
    def counts(self) -> Counts:
        """Counts of its work."""
        return self._exchanges.counts

    def forget_private(self) -> None:
        """Drop the answers that were made for one user. Call it when another user takes over."""
        self._exchanges.forget_private()

    def _level_of(self, request: httpx.Request) -> Level:
        """Return the level of one request."""
        level = of_request(request.extensions.get(EXTENSION), self._level)
        if level is not self._level and not level.strong:
            self._warn_of_delta(level.delta_s)
        return level

    def _boarded(self, ask: Ask) -> tuple[Flight | None, bool]:
        """Return the flight of a request, and whether this request leads it; None: the request goes alone."""
        known = self._exchanges.flight(ask)
        if known is None:
            return None, False
        key, at_most_ms = known
        return self._flights.board(key, ask, moment().monotonic_ms, at_most_ms=at_most_ms)

    def _sketch_relied_on(self) -> None:
        if self._level.delta_s is None:
            self._warn_of_delta(self._exchanges.sketches.delta_s)

    def _warn_of_delta(self, delta_s: float | None) -> None:
        """Warn, once, that a Δ is too small for copies."""
        if delta_s and delta_s < LEAST_DELTA_S and not self._warned_of_delta:
            self._warned_of_delta = True
            _log.warning(
                "client.delta_too_small: delta_s=%g: nearly every read asks the server, whose clock is known to within 2 s; "
                "give at least %g for answers out of memory, or 0 to ask each time on purpose",
                delta_s, LEAST_DELTA_S,
            )  # fmt: skip

    @staticmethod
    def _passed(response: httpx.Response) -> httpx.Response:
        """Return an answer of the network, marked as such."""
        response.extensions[FROM_CACHE] = False
        return response

    def _warn(self) -> None:
        """Log, once, why there is no sketch to rely on."""
        if not self._warned:
            self._warned = True
            why = self._exchanges.sketches.why
            _log.warning("client.no_sketch_to_rely_on: every answer is revalidated with the server: %s", why)
