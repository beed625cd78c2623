"""A handler's 304 about another answer than the stored one: it is asked for the whole, with the request as it came."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from quaestor.middleware.bodies import UnkeyedBody
from quaestor.middleware.interface import Message
from tests.end_to_end.site import Site
from tests.raw_asgi import Exchanged, exchanged, scope_of

pytestmark = pytest.mark.anyio


class Shop(Site):
    """An app that answers with its body and the tag of its version, storable for a second; 304 to a request with any
    tag.
    """

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

        async def handler(request: Request) -> Response:
            body = await request.body()
            self.bodies.append(body)
            given = {"etag": f'"v{self.version}"', "cache-control": "max-age=1"}
            if "if-none-match" in request.headers:
                return Response(status_code=304, headers=given)
            return PlainTextResponse(b"got " + body, headers=given)

        super().__init__(handler, explicit=True)

    async def ask(self, *pieces: bytes) -> Exchanged:
        return await exchanged(self.app, scope_of("/items"), pieces or (b"",), stays=True)


async def test_a_handler_that_reads_its_request_can_read_it_again() -> None:
    """A second run of the handler reads the same body; without that it would wait for ever for bytes that the first run
    took.
    """
    shop = Shop()
    await shop.ask()
    shop.engine.clock.now_ms += 5_000
    shop.version = 2
    answer = await shop.ask()
    assert (answer.status, answer.body, answer.of(b"etag")) == (200, b"got ", [b'"v2"'])
    assert shop.runs == 3


@pytest.mark.parametrize("pieces", [(b"a",), (b"a", b"bc", b""), (b"x" * 70_000,)])
async def test_a_body_that_nobody_announced_comes_again_too(pieces: Sequence[bytes]) -> None:
    """An unannounced body is repeated; if it is too long to be remembered, the handler sees a disconnect, and waits for
    nothing.
    """
    messages: list[Message] = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]

    async def receive() -> Message:
        return messages.pop(0)

    body = UnkeyedBody(receive, announced=False)
    taken = [await body.receive() for _ in pieces]
    body.begin_again()
    again = [await body.receive()] if len(pieces[0]) > 64 * 1024 else [await body.receive() for _ in pieces]
    assert again == ([{"type": "http.disconnect"}] if len(pieces[0]) > 64 * 1024 else taken)
    assert body.seen
