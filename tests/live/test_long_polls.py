"""Long polls: a conditional GET that waits for the next answer."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from quaestor.live.long_poll import wait_s
from tests.live.live_site import LiveSite

pytestmark = pytest.mark.anyio


async def waiting(
    site: LiveSite, client: httpx.AsyncClient, tag: str, seconds: int = 20
) -> asyncio.Task[httpx.Response]:
    poll = asyncio.create_task(client.get("/items", headers={"if-none-match": tag, "prefer": f"wait={seconds}"}))
    await site.until_followed()
    return poll


async def test_it_is_answered_when_the_answer_changes() -> None:
    site = LiveSite()
    async with site.served() as client:
        tag = (await client.get("/items")).headers["etag"]
        poll = await waiting(site, client, tag)
        site.change(2)
        answer = await poll
        assert (answer.status_code, answer.json()) == (200, {"version": 2})
        assert answer.headers["preference-applied"] == "wait=20"
        assert answer.headers["etag"] == (await client.get("/items")).headers["etag"]
    assert site.runs == 2


async def test_it_is_answered_304_at_the_end_of_the_wait() -> None:
    site = LiveSite(live_wait_ms=100)
    async with site.served() as client:
        tag = (await client.get("/items")).headers["etag"]
        answer = await client.get("/items", headers={"if-none-match": tag, "prefer": "wait=20"})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == tag


async def test_it_waits_on_if_the_new_answer_is_the_same() -> None:
    site = LiveSite()
    async with site.served() as client:
        tag = (await client.get("/items")).headers["etag"]
        poll = await waiting(site, client, tag)
        site.die()
        await site.until_runs(2)
        assert not poll.done()
        site.change(2)
        assert (await poll).json() == {"version": 2}


async def test_an_outdated_tag_is_answered_at_once() -> None:
    site = LiveSite()
    async with site.served() as client:
        answer = await client.get("/items", headers={"if-none-match": '"old"', "prefer": "wait=20"})
        assert answer.json() == {"version": 1}


async def test_a_client_that_leaves_leaves_nothing_behind() -> None:
    site = LiveSite()
    async with site.served() as client:
        tag = (await client.get("/items")).headers["etag"]
        poll = await waiting(site, client, tag)
        poll.cancel()
        await asyncio.wait((poll,))


async def test_a_route_that_is_not_live_answers_at_once() -> None:
    site = LiveSite()
    async with site.served() as client:
        tag = (await client.get("/plain/items")).headers["etag"]
        answer = await client.get("/plain/items", headers={"if-none-match": tag, "prefer": "wait=20"})
        assert answer.status_code == 304
        assert "preference-applied" not in answer.headers


@pytest.mark.parametrize(
    ("field", "seconds"),
    [
        (b"wait=25", 25), (b"respond-async, wait=10", 10), (b'Wait = "7"', 7), (b"handling=lenient; wait=3", 3),
        (b"wait", 0), (b"wait=-1", 0), (b"waits=9", 0), (b"wait=99999999", 0), (b"", 0),
    ],
)  # fmt: skip
def test_the_preference_is_read_as_rfc_7240_writes_it(field: bytes, seconds: int) -> None:
    assert wait_s([(b"prefer", field)]) == seconds
