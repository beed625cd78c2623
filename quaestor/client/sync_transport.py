"""Transport for `httpx.Client`: the synchronous twin of `quaestor.client.transport`."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

import httpx

from quaestor.client.copied_reads import CopiedReads
from quaestor.client.copies import MEMORY_BYTES, Copy
from quaestor.client.exchange import SAFE_METHODS
from quaestor.client.flights import Flight
from quaestor.client.levels import EXTENSION, FROM_CACHE, Level
from quaestor.client.messages import (
    KeptSyncStream,
    ResumedSyncStream,
    fields_of,
    moment,
    nonce,
    response_of,
    sent,
    waits_s,
)
from quaestor.client.sketches import MAX_BYTES
from quaestor.client.steps import Answer, Ask, Keep
from quaestor.client.stored import SyncStoredAnswers

if TYPE_CHECKING:
    from hishel import BaseStorage


class QuaestorSyncTransport(CopiedReads, httpx.BaseTransport):
    """Reads of one server through copies in this process's memory: `httpx.Client(transport=QuaestorSyncTransport(url))`.

    Use one transport for all requests of a program to a server, so that each answer is held once. Several threads may use it. No
    request waits for a sketch: without a sufficient sketch, the server answers.

    server: URL of the server whose answers carry `Quaestor-TTL`; requests to others pass.
    level: required freshness of answers, unless a request names its own (`extensions={"quaestor": ...}`).
    memory_bytes: size of the memory, in bytes.
    sketch: path of the Cache Sketch.
    transport: sends the requests; httpx's own by default.
    storage: one of hishel's, for instance its SqliteStorage: keeps answers beyond the program. Closed with the transport.

    Raises ConfigurationError for an invalid value.
    """

    def __init__(
        self,
        server: str,
        *,
        level: Level | None = None,
        memory_bytes: int = MEMORY_BYTES,
        sketch: str = "/quaestor/sketch",
        transport: httpx.BaseTransport | None = None,
        storage: BaseStorage | None = None,
    ) -> None:
        super().__init__(server, level, memory_bytes, sketch)
        self._inner = transport if transport is not None else httpx.HTTPTransport()
        self._answers = SyncStoredAnswers(self._inner, storage) if storage is not None else self._inner
        self._loads: set[threading.Thread] = set()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request, from memory if the rules allow."""
        level = self._level_of(request)
        request_fields = fields_of(request)
        if not self._server.serves(request.url, request_fields):
            return self._inner.handle_request(request)
        if request.method not in SAFE_METHODS:
            try:
                return self._passed(self._inner.handle_request(request))
            finally:
                self._exchanges.wrote(moment())
        step: Ask | Answer | None = None
        if request.method == "GET":
            step = self._exchanges.begin(request.url.raw_path, request_fields, level, moment())
            self._load_wanted()
        if step is None:
            response = self._inner.handle_request(request)
            self._exchanges.passed(moment())
            return self._passed(response)
        if isinstance(step, Answer):
            return self._answered(step, None)
        flight, leads = self._boarded(step)
        if flight is None:
            return self._send(request, step)
        if leads:
            return self._led(request, step, flight)
        return self._waited(request, step, flight) or self._send(request, step)

    def _send(self, request: httpx.Request, ask: Ask, flight: Flight | None = None) -> httpx.Response:
        """Ask the server, and once more if the rules demand it."""
        step: Ask | Answer = ask
        response: httpx.Response | None = None
        while isinstance(step, Ask):
            response = self._answers.handle_request(sent(request, step))
            step = self._exchanges.answered(
                step, response.status_code, response.headers, response.headers.raw, moment()
            )
            if isinstance(step, Ask) or step.copy is not None:
                response.close()
        self._load_wanted()
        if flight is not None and self._flights.close(flight):
            if step.shared:
                flight.land(step.copy)
            elif step.keep is not None and response is not None:
                flight.land(self._read_whole(response, step.keep))
        return self._answered(step, response)

    def _led(self, request: httpx.Request, ask: Ask, flight: Flight) -> httpx.Response:
        """Ask the server, for the waiting requests as well."""
        try:
            return self._send(request, ask, flight)
        finally:
            self._flights.close(flight)
            flight.land(None)

    def _waited(self, request: httpx.Request, ask: Ask, flight: Flight) -> httpx.Response | None:
        """Wait for another request's answer; None if it does not fit this request."""
        try:
            copy = flight.landed.result(waits_s(request))
        except TimeoutError:
            return None
        answer = None if copy is None else self._exchanges.shared(ask, flight, copy, moment())
        return None if answer is None else self._answered(answer, None)

    def _read_whole(self, response: httpx.Response, leave: Keep) -> Copy | None:
        """Read a body that other requests wait for; None if it is too large."""
        stream = response.stream
        assert isinstance(stream, httpx.SyncByteStream)
        pieces, rest = bytearray(), iter(stream)
        for chunk in rest:
            pieces += chunk
            if len(pieces) > self._exchanges.copies.largest_bytes:
                response.stream = ResumedSyncStream(bytes(pieces), rest, stream)
                return None
        stream.close()
        response.stream = httpx.ByteStream(bytes(pieces))
        return self._exchanges.keep(leave, response.headers.raw, bytes(pieces))

    def _answered(self, answer: Answer, response: httpx.Response | None) -> httpx.Response:
        if answer.copy is not None:
            return response_of(answer.copy, answer.source)
        assert response is not None
        return self._handed_on(response, answer)

    def refresh(self) -> None:
        """Load the sketches now, past all caches. Never raises if none can be loaded."""
        for name in self._exchanges.sketches.partitions:
            self._load(name, proof=True)

    def close(self) -> None:
        """Wait for background loads, and close the underlying transport."""
        for thread in list(self._loads):
            thread.join()
        self._answers.close()

    def _handed_on(self, response: httpx.Response, answer: Answer) -> httpx.Response:
        response.extensions[EXTENSION], response.extensions[FROM_CACHE] = answer.source, False
        if answer.keep is not None and isinstance(response.stream, httpx.SyncByteStream):
            whole = partial(self._exchanges.keep, answer.keep, response.headers.raw)
            response.stream = KeptSyncStream(response.stream, self._exchanges.copies.largest_bytes, whole)
        return response

    def _load_wanted(self) -> None:
        for partition in self._exchanges.to_load():
            self._load_beside(partition)

    def _load_beside(self, name: str) -> None:
        def load() -> None:
            try:
                self._load(name)
            finally:
                self._loads.discard(thread)

        thread = threading.Thread(target=load, name="quaestor-sketch", daemon=True)
        self._loads.add(thread)
        try:
            thread.start()
        except RuntimeError as error:  # no more threads: the request is answered without it
            self._loads.discard(thread)
            self._exchanges.sketch_failed(name, str(error), moment())

    def _load(self, name: str, *, proof: bool = False) -> None:
        relied, why = None, "the load was broken off"
        try:
            while relied is None:
                ask = self._exchanges.ask_sketch(name, nonce=nonce(), now=moment(), proof=proof)
                response = self._inner.handle_request(self._server.sketch_request(ask))
                try:
                    body = _read(response)
                finally:
                    response.close()
                relied = self._exchanges.sketch_answered(ask, response.status_code, response.headers, body, moment())
                proof = True
        except Exception as error:  # any error of a transport: reads go on without a sketch
            why = f"{type(error).__name__}: {error}"
        finally:
            if relied is None:
                self._exchanges.sketch_failed(name, why, moment())
        if relied:
            self._sketch_relied_on()
        else:
            self._warn()


def _read(response: httpx.Response) -> bytes:
    """Return a body, decoded; cut if it is too long for a sketch, so that it is invalid."""
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > MAX_BYTES:
            break
    return bytes(body)
