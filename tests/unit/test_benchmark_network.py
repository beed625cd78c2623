"""The network of the benchmark's client machines: what httpx's own transport would answer, over connections that are kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import httpx
import pytest

from benchmarks.query_caching import network
from benchmarks.query_caching.network import Network

pytestmark = pytest.mark.anyio

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Twice: a\r\nX-Twice: b\r\n\r\nhi"
PLAIN_FIELDS = [(b"Content-Length", b"2"), (b"X-Twice", b"a"), (b"X-Twice", b"b")]
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n3\r\n yo\r\n0\r\n\r\n"
UNCHANGED = b'HTTP/1.1 304 Not Modified\r\nETag: "1"\r\n\r\n'
LAST = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """URL of a server whose connections are handled so; at the end all of them have ended."""
    handled: list[asyncio.Task[None]] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            await handler(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handled.append(asyncio.create_task(connected(reader, writer)))

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await asyncio.wait_for(asyncio.gather(*handled), 30)


class Scripted:
    """Server of canned answers, one for each request, whichever connection it comes by.

    answers: pieces of each; None: the connection is closed instead.
    """

    def __init__(self, answers: Sequence[Sequence[bytes] | None]) -> None:
        self._answers = iter(answers)
        self.connections = 0
        self.requests: list[bytes] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer what comes by one connection."""
        self.connections += 1
        while True:
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            pieces = next(self._answers)
            if pieces is None:
                return
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)


@asynccontextmanager
async def answering(*answers: Sequence[bytes] | None) -> AsyncIterator[tuple[Scripted, str]]:
    scripted = Scripted(answers)
    async with serving(scripted.handle) as url:
        yield scripted, url


async def answer_of(transport: httpx.AsyncBaseTransport, url: str) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    response = await transport.handle_async_request(httpx.Request("GET", f"{url}/records/1?x=1", headers={"a": "b"}))
    return response.status_code, response.headers.raw, await response.aread()


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED, UNCHANGED, LAST], ids=["plain", "chunked", "unchanged", "last"])
async def test_requests_and_answers_are_those_of_httpx_own_transport(answer: bytes) -> None:
    """Requests and answers are equal also where an answer comes byte by byte."""
    async with answering([answer], [bytes([byte]) for byte in answer], [answer]) as (server, url):
        ours, own = Network(url), httpx.AsyncHTTPTransport()
        answers = [await answer_of(ours, url), await answer_of(ours, url), await answer_of(own, url)]
        await ours.aclose()
        await own.aclose()
    assert answers[0] == answers[1] == answers[2]
    assert server.requests[0] == server.requests[1] == server.requests[2]
    assert server.connections == (3 if answer is LAST else 2)


async def test_requests_at_a_time_have_connections_of_their_own_and_those_are_used_again() -> None:
    async with answering(*[[PLAIN]] * 9) as (server, url):
        ours = Network(url)
        for _ in range(3):
            assert [answer[0] for answer in await asyncio.gather(*(answer_of(ours, url) for _ in range(3)))] == [
                200
            ] * 3
        await ours.aclose()
    assert server.connections == 3


async def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "KEPT_S", -1.0)
    async with answering([PLAIN], [PLAIN]) as (server, url):
        ours = Network(url)
        assert [await answer_of(ours, url), await answer_of(ours, url)] == [(200, PLAIN_FIELDS, b"hi")] * 2
        await ours.aclose()
    assert server.connections == 2


async def test_no_answer_is_an_error_and_the_next_request_has_another_connection() -> None:
    """The server closes the connection, sends half an answer, or something else."""
    async with answering(None, [PLAIN], [b"what?\r\n\r\n"], [PLAIN]) as (_, url):
        ours = Network(url)
        for _ in range(2):
            with pytest.raises(httpx.RemoteProtocolError):
                await answer_of(ours, url)
            assert (await answer_of(ours, url))[0] == 200
        await ours.aclose()
    with pytest.raises(httpx.ConnectError):
        await answer_of(Network(url), url)


async def test_a_cancelled_request_leaves_no_answer_to_the_next_one() -> None:
    """A request is cancelled while its answer is under way: the next request receives its own answer."""
    begun = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"/slow" in await reader.readuntil(b"\r\n\r\n"):
            begun.set()
        else:
            writer.write(PLAIN)
        await reader.read()  # until the client closes

    async with serving(handle) as url:
        ours = Network(url)
        slow = asyncio.create_task(ours.handle_async_request(httpx.Request("GET", f"{url}/slow")))
        await begun.wait()
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert (await answer_of(ours, url))[2] == b"hi"
        await ours.aclose()
