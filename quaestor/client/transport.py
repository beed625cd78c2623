"""Transport for `httpx.AsyncClient`: answers from this client's memory, if the server would answer the same."""

from __future__ import annotations

import asyncio
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING

import httpx

from quaestor.client.copied_reads import CopiedReads
from quaestor.client.copies import MEMORY_BYTES, Copy
from quaestor.client.exchange import SAFE_METHODS
from quaestor.client.flights import Flight
from quaestor.client.levels import EXTENSION, FROM_CACHE, Level
from quaestor.client.messages import (
    KeptAsyncStream,
    ResumedAsyncStream,
    fields_of,
    moment,
    nonce,
    response_of,
    sent,
    waits_s,
)
from quaestor.client.sketches import MAX_BYTES
from quaestor.client.steps import Answer, Ask, Keep
from quaestor.client.stored import AsyncStoredAnswers

if TYPE_CHECKING:
    from hishel import AsyncBaseStorage


class QuaestorTransport(CopiedReads, httpx.AsyncBaseTransport):
    """Reads of one server through copies in this process's memory: `httpx.AsyncClient(transport=QuaestorTransport(url))`.

    Use one transport for all requests of a program to a server, so that each answer is held once. For asyncio. No request waits
    for a sketch: without a sufficient sketch, the server answers.

    server: URL of the server whose answers carry `Quaestor-TTL`; requests to others pass.
    level: required freshness of answers, unless a request names its own (`extensions={"quaestor": ...}`).
    memory_bytes: size of the memory, in bytes.
    sketch: path of the Cache Sketch.
    transport: sends the requests; httpx's own by default.
    storage: one of hishel's, for instance its AsyncSqliteStorage: keeps answers beyond the program. Closed with the transport.

    Raises ConfigurationError for an invalid value.
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
        super().__init__(server, level, memory_bytes, sketch)
        self._inner = transport if transport is not None else httpx.AsyncHTTPTransport()
        self._answers = AsyncStoredAnswers(self._inner, storage) if storage is not None else self._inner
        self._loads: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request, from memory if the rules allow."""
        level = self._level_of(request)
        request_fields = fields_of(request)
        if not self._server.serves(request.url, request_fields):
            return await self._inner.handle_async_request(request)
        if request.method not in SAFE_METHODS:
            try:
                return self._passed(await self._inner.handle_async_request(request))
            finally:
                self._exchanges.wrote(moment())
        step: Ask | Answer | None = None
        if request.method == "GET":
            step = self._exchanges.begin(request.url.raw_path, request_fields, level, moment())
            self._load_wanted()
        if step is None:
            response = await self._inner.handle_async_request(request)
            self._exchanges.passed(moment())
            return self._passed(response)
        if isinstance(step, Answer):
            return self._answered(step, None)
        flight, leads = self._boarded(step)
        if flight is None:
            return await self._send(request, step)
        if leads:
            return await self._led(request, step, flight)
        return await self._waited(request, step, flight) or await self._send(request, step)

    async def _send(self, request: httpx.Request, ask: Ask, flight: Flight | None = None) -> httpx.Response:
        """Ask the server, and once more if the rules demand it."""
        step: Ask | Answer = ask
        response: httpx.Response | None = None
        while isinstance(step, Ask):
            response = await self._answers.handle_async_request(sent(request, step))
            step = self._exchanges.answered(
                step, response.status_code, response.headers, response.headers.raw, moment()
            )
            if isinstance(step, Ask) or step.copy is not None:
                await response.aclose()
        self._load_wanted()
        if flight is not None and self._flights.close(flight):
            if step.shared:
                flight.land(step.copy)
            elif step.keep is not None and response is not None:
                flight.land(await self._read_whole(response, step.keep))
        return self._answered(step, response)

    async def _led(self, request: httpx.Request, ask: Ask, flight: Flight) -> httpx.Response:
        """Ask the server, for the waiting requests as well."""
        try:
            return await self._send(request, ask, flight)
        finally:
            self._flights.close(flight)
            flight.land(None)

    async def _waited(self, request: httpx.Request, ask: Ask, flight: Flight) -> httpx.Response | None:
        """Wait for another request's answer; None if it does not fit this request."""
        try:
            landed = asyncio.wait_for(asyncio.shield(asyncio.wrap_future(flight.landed)), waits_s(request))
            copy = await landed
        except TimeoutError:
            return None
        answer = None if copy is None else self._exchanges.shared(ask, flight, copy, moment())
        return None if answer is None else self._answered(answer, None)

    async def _read_whole(self, response: httpx.Response, leave: Keep) -> Copy | None:
        """Read a body that other requests wait for; None if it is too large."""
        stream = response.stream
        assert isinstance(stream, httpx.AsyncByteStream)
        pieces, rest = bytearray(), aiter(stream)
        async for chunk in rest:
            pieces += chunk
            if len(pieces) > self._exchanges.copies.largest_bytes:
                response.stream = ResumedAsyncStream(bytes(pieces), rest, stream)
                return None
        await stream.aclose()
        response.stream = httpx.ByteStream(bytes(pieces))
        return self._exchanges.keep(leave, response.headers.raw, bytes(pieces))

    def _answered(self, answer: Answer, response: httpx.Response | None) -> httpx.Response:
        if answer.copy is not None:
            return response_of(answer.copy, answer.source)
        assert response is not None
        return self._handed_on(response, answer)

    async def refresh(self) -> None:
        """Load the sketches now, past all caches. Never raises if none can be loaded."""
        await asyncio.gather(*(self._load(name, proof=True) for name in self._exchanges.sketches.partitions))

    async def aclose(self) -> None:
        """End background loads, and close the underlying transport."""
        here = [task for task in self._loads if task.get_loop() is asyncio.get_running_loop()]
        for task in here:
            task.cancel()
        await asyncio.gather(*here, return_exceptions=True)
        await self._answers.aclose()

    def _handed_on(self, response: httpx.Response, answer: Answer) -> httpx.Response:
        response.extensions[EXTENSION], response.extensions[FROM_CACHE] = answer.source, False
        if answer.keep is not None and isinstance(response.stream, httpx.AsyncByteStream):
            whole = partial(self._exchanges.keep, answer.keep, response.headers.raw)
            response.stream = KeptAsyncStream(response.stream, self._exchanges.copies.largest_bytes, whole)
        return response

    def _load_wanted(self) -> None:
        for partition in self._exchanges.to_load():
            self._load_beside(partition)

    def _load_beside(self, name: str) -> None:
        # In a new context, because the load belongs to no request.
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
        except Exception as error:  # any error of a transport: reads go on without a sketch
            why = f"{type(error).__name__}: {error}"
        finally:
            if relied is None:
                self._exchanges.sketch_failed(name, why, moment())
        if relied:
            self._sketch_relied_on()
        else:
            self._warn()


async def _read(response: httpx.Response) -> bytes:
    """Return a body, decoded; cut if it is too long for a sketch, so that it is invalid."""
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > MAX_BYTES:
            break
    return bytes(body)
