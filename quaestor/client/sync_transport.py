"""Transport for `httpx.Client`: the synchronous twin of `quaestor.client.transport`."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING

import httpx

from quaestor.client.copies import MEMORY_BYTES
from quaestor.client.exchange import SAFE_METHODS, Exchanges
from quaestor.client.levels import EXTENSION, Level, of_request
from quaestor.client.messages import KeptSyncStream, Server, fields_of, moment, nonce, response_of, sent
from quaestor.client.sketches import MAX_BYTES
from quaestor.client.steps import Answer, Ask, Counts
from quaestor.client.stored import SyncStoredAnswers

if TYPE_CHECKING:
    from hishel import BaseStorage

_log = logging.getLogger("quaestor.client")


class QuaestorSyncTransport(httpx.BaseTransport):
    """Reads of one server through copies in this process's memory: `httpx.Client(transport=QuaestorSyncTransport(url))`.

    One for all requests of a program to a server: what it holds, it holds once. May be used from several threads. No
    request waits for a sketch: while there is none that tells enough, the server is asked.

    server: URL of the server whose answers carry `Quaestor-TTL`; requests to others pass.
    level: the freshness of answers, where a request does not say its own (`extensions={"quaestor": ...}`).
    memory_bytes: how much is kept, in bytes.
    sketch: path of the Cache Sketch.
    transport: what sends requests; httpx's own by default.
    storage: of hishel's, for instance its SqliteStorage: keeps answers for longer than the program runs. Closed with it.

    Raises ConfigurationError for a value that cannot be.
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
        self._server = Server(server, sketch)
        self._level = level or Level()
        self._exchanges = Exchanges(self._level, memory_bytes)
        self._inner = transport if transport is not None else httpx.HTTPTransport()
        self._answers = SyncStoredAnswers(self._inner, storage) if storage is not None else self._inner
        self._loads: set[threading.Thread] = set()
        self._warned = False

    @property
    def counts(self) -> Counts:
        """Its work, counted."""
        return self._exchanges.counts

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request, from memory if the rules allow."""
        level = of_request(request.extensions.get(EXTENSION), self._level)
        asked = fields_of(request)
        if not self._server.serves(request.url, asked):
            return self._inner.handle_request(request)
        if request.method not in SAFE_METHODS:
            try:
                return self._inner.handle_request(request)
            finally:
                self._exchanges.wrote(moment())
        step: Ask | Answer | None = None
        if request.method == "GET":
            step = self._exchanges.begin(request.url.raw_path, asked, level, moment())
            for partition in self._exchanges.to_load():
                self._load_beside(partition)
        if step is None:
            response = self._inner.handle_request(request)
            self._exchanges.passed(moment())
            return response
        while isinstance(step, Ask):
            response = self._answers.handle_request(sent(request, step))
            step = self._exchanges.answered(
                step, response.status_code, response.headers, response.headers.raw, moment()
            )
            if isinstance(step, Ask) or step.copy is not None:
                response.close()
        if step.copy is not None:
            return response_of(step.copy, step.source)
        return self._handed_on(response, step)

    def refresh(self) -> None:
        """Load the sketches now, past all caches. It does not raise when there is none to be had."""
        for name in self._exchanges.sketches.partitions:
            self._load(name, proof=True)

    def forget_private(self) -> None:
        """Drop the answers that were made for one user: call it when another one takes over."""
        self._exchanges.forget_private()

    def close(self) -> None:
        """Wait for what runs beside the requests, and close what sends them."""
        for thread in list(self._loads):
            thread.join()
        self._answers.close()

    def _handed_on(self, response: httpx.Response, answer: Answer) -> httpx.Response:
        response.extensions[EXTENSION] = answer.source
        if answer.keep is not None and isinstance(response.stream, httpx.SyncByteStream):
            whole = partial(self._exchanges.keep, answer.keep, response.headers.raw)
            response.stream = KeptSyncStream(response.stream, self._exchanges.copies.largest_bytes, whole)
        return response

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
        except Exception as error:  # whatever a transport raises: reads go on without a sketch
            why = f"{type(error).__name__}: {error}"
        finally:
            if relied is None:
                self._exchanges.sketch_failed(name, why, moment())
        if not relied and not self._warned:
            self._warned = True
            why = self._exchanges.sketches.why
            _log.warning("client.no_sketch_to_rely_on: every answer is revalidated with the server: %s", why)


def _read(response: httpx.Response) -> bytes:
    """A body, decoded; cut where it is too long for a sketch, so that it is none."""
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > MAX_BYTES:
            break
    return bytes(body)
