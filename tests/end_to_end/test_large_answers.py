"""Large answers that a CDN may keep: what dies while it is being sent is purged again, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from quaestor.middleware.sending_watched import WATCHED_FROM
from tests.end_to_end.site import Site
from tests.hand_driven import TaggingCdn, reads

pytestmark = pytest.mark.anyio


def site(size: int, **settings: Any) -> Site:
    async def page(request: Request) -> Response:
        reads()
        return PlainTextResponse("x" * size)

    return Site(page, **settings)


async def sent(site: Site, *, dies_after: int | None = None) -> list[Any]:
    """The messages of one GET; what is stored dies when so many of them were sent."""
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)
        if len(messages) == dies_after:
            site.engine.registry.kill()

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "method": "GET", "scheme": "http",
        "path": "/s", "raw_path": b"/s", "query_string": b"", "headers": [(b"host", b"shop.test")], "root_path": "",
    }  # fmt: skip
    await site.app(scope, receive, send)
    return messages


@pytest.mark.parametrize("hit", [False, True], ids=["miss", "hit"])
async def test_an_answer_that_dies_while_it_is_being_sent_is_purged_again(hit: bool) -> None:
    """A large answer is purged again, from a miss or out of memory, where a small answer is not watched."""
    large = site(WATCHED_FROM, cdn=[TaggingCdn()])
    if hit:
        await sent(large)
        await sent(large)
    messages = await sent(large, dies_after=3)
    assert b"".join(message.get("body", b"") for message in messages) == b"x" * WATCHED_FROM
    assert [message["more_body"] for message in messages[1:]] == [True] * (len(messages) - 2) + [False]
    (purged,) = large.engine.purged_again
    assert purged.urls == ("http://shop.test/s",)
    assert purged.tags
    assert large.runs == 1


@pytest.mark.parametrize("size", [10, WATCHED_FROM], ids=["small", "large"])
async def test_a_living_or_a_small_answer_is_not_purged(size: int) -> None:
    """A small answer is in the system's buffers before anything could happen to it."""
    lives = site(size, cdn=[TaggingCdn()])
    for _ in range(3):
        await sent(lives)
    small = site(10, cdn=[TaggingCdn()])
    await sent(small, dies_after=1)
    assert lives.engine.purged_again == small.engine.purged_again == []


async def test_without_a_cdn_it_is_sent_as_it_always_was() -> None:
    """In one piece: nobody would have to be purged."""
    alone = site(WATCHED_FROM)
    assert len(await sent(alone, dies_after=1)) == 2
    assert alone.engine.purged_again == []
