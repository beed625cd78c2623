"""Transport for `httpx.AsyncClient`: answers from this client's memory what the server would answer alike."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING

import httpx

from quaestor.client.copies import MEMORY_BYTES
from quaestor.client.exchange import SAFE_METHODS, Exchanges
from quaestor.client.levels import EXTENSION, Level, of_request
from quaestor.client.messages import KeptAsyncStream, Server, fields_of, moment, nonce, response_of, sent
from quaestor.client.sketches import MAX_BYTES
from quaestor.client.steps import Answer, Ask, Counts
from quaestor.client.stored import AsyncStoredAnswers

if TYPE_CHECKING:
    from hishel import AsyncBaseStorage

_log = logging.getLogger("quaestor.client")


class QuaestorTransport(httpx.AsyncBaseTransport):
    """Reads of one server through copies in this process's memory: `httpx.AsyncClient(transport=QuaestorTransport(url))`.

    One for all requests of a program to a server: what it holds, it holds once. For asyncio. No request waits for a sketch: while
    there is none that tells enough, the server is asked.

    server: URL of the server whose answers carry `Quaestor-TTL`; requests to others pass.
    level: the freshness of answers, where a request does not say its own (`extensions={"quaestor": ...}`).
    memory_bytes: how much is kept, in bytes.
    sketch: path of the Cache Sketch.
    transport: what sends requests; httpx's own by default.
    storage: of hishel's, for instance its AsyncSqliteStorage: keeps answers for longer than the program runs. Closed with it.

    Raises ConfigurationError for a value that cannot be.
    """

    def __init__(
        self,
        server: str,
        *,
        level: Level | None = None,
        memory_bytes: int = MEMORY_BYTES,
        sketch: str = "/quaestor/sketch",
        transport: httpx.AsyncBaseTransport | None = None,
        storage: AsyncBaseStorage | None = None,
    ) -> None:
        self._server = Server(server, sketch)
        self._level = level or Level()
        self._exchanges = Exchanges(self._level, memory_bytes)
        self._inner = transport if transport is not None else httpx.AsyncHTTPTransport()
        self._answers = AsyncStoredAnswers(self._inner, storage) if storage is not None else self._inner
        self._loads: set[asyncio.Task[None]] = set()
        self._warned = False

    @property
    def counts(self) -> Counts:
        """Its work, counted."""
        return self._exchanges.counts

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request, from memory if the rules allow."""
        level = of_request(request.extensions.get(EXTENSION), self._level)
        asked = fields_of(request)
        if not self._server.serves(request.url, asked):
            return await self._inner.handle_async_request(request)
        if request.method not in SAFE_METHODS:
            try:
                return await self._inner.handle_async_request(request)
            finally:
                self._exchanges.wrote(moment())
        step: Ask | Answer | None = None
        if request.method == "GET":
            step = self._exchanges.begin(request.url.raw_path, asked, level, moment())
            for partition in self._exchanges.to_load():
                self._load_beside(partition)
        if step is None:
            response = await self._inner.handle_async_request(request)
            self._exchanges.passed(moment())
            return response
        while isinstance(step, Ask):
            response = await self._answers.handle_async_request(sent(request, step))
            step = self._exchanges.answered(
                step, response.status_code, response.headers, response.headers.raw, moment()
            )
            if isinstance(step, Ask) or step.copy is not None:
                await response.aclose()
        if step.copy is not None:
            return response_of(step.copy, step.source)
        return self._handed_on(response, step)

    async def refresh(self) -> None:
        """Load the sketches now, past all caches. It does not raise when there is none to be had."""
        await asyncio.gather(*(self._load(name, proof=True) for name in self._exchanges.sketches.partitions))

    def forget_private(self) -> None:
        """Drop the answers that were made for one user: call it when another one takes over."""
        self._exchanges.forget_private()

    async def aclose(self) -> None:
        """End what runs beside the requests, and close what sends them."""
        here = [task for task in self._loads if task.get_loop() is asyncio.get_running_loop()]
        for task in here:
            task.cancel()
        await asyncio.gather(*here, return_exceptions=True)
        await self._answers.aclose()

    def _handed_on(self, response: httpx.Response, answer: Answer) -> httpx.Response:
        response.extensions[EXTENSION] = answer.source
        if answer.keep is not None and isinstance(response.stream, httpx.AsyncByteStream):
            whole = partial(self._exchanges.keep, answer.keep, response.headers.raw)
            response.stream = KeptAsyncStream(response.stream, self._exchanges.copies.largest_bytes, whole)
        return response

    def _load_beside(self, name: str) -> None:
        # In a context of its own: it belongs to no request, whatever its caller keeps there.
        task = asyncio.get_running_loop().create_task(self._load(name), context=Context())
        self._loads.add(task)
        task.add_done_callback(self._loads.discard)

    async def _load(self, name: str, *, proof: bool = False) -> None:
        relied, why = None, "the load was broken off"
        try:
            while relied is None:
                ask = self._exchanges.ask_sketch(name, nonce=nonce(), now=moment(), proof=proof)
                response = await self._inner.handle_async_request(self._server.sketch_request(ask))
                try:
                    body = await _read(response)
                finally:
                    await response.aclose()
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


async def _read(response: httpx.Response) -> bytes:
    """A body, decoded; cut where it is too long for a sketch, so that it is none."""
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > MAX_BYTES:
            break
    return bytes(body)
