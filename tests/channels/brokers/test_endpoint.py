"""Endpoint for readers on a real server: pages, signatures, acknowledgements, long polls, streams and sockets."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from pydantic import SecretStr
from starlette.applications import Starlette
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from quaestor.channels.brokers.serving import ServedResults
from quaestor.live.results.endpoint import channel_results
from quaestor.webhook_signatures import Signer
from tests.channels.brokers.world import KEY, RUN, World
from tests.end_to_end.scripted_origin import serving
from tests.support import eventually

pytestmark = pytest.mark.anyio
SIGNER = Signer(SecretStr(KEY), name="the key")
RESULTS = "/channels/offers/results?broker=a"
MINE = "/channels/offers/subscriptions/s1/results"


class Site:
    def __init__(self, world: World, source: ServedResults, client: httpx.AsyncClient, url: str) -> None:
        self.world = world
        self.source = source
        self.client = client
        self.url = url

    async def get(self, target: str, **fields: str) -> httpx.Response:
        """Send a signed GET."""
        signed = SIGNER.fields("r1", f"GET {target}", at_s=time.time())
        return await self.client.get(target, headers={**signed, **fields})

    async def acknowledge(self, run: Any, **fields: str) -> httpx.Response:
        body = json.dumps({"broker": "a", "run": run})
        signed = SIGNER.fields("r2", body, at_s=time.time())
        return await self.client.post("/channels/offers/acknowledgements", content=body, headers={**signed, **fields})


@asynccontextmanager
async def site(folder: Path, *, look_s: float = 0.05, public: bool = False) -> AsyncIterator[Site]:
    """Serve three runs: s1 at broker a in each, s2 at broker b in the second."""
    world = World(folder)
    world.broker("a", 9, public=public)
    world.broker("b", 9)
    world.run(1, ("a", ["s1"], {"n": 1}))
    world.run(2, ("a", ["s1", "s3"], {"n": 2}), ("b", ["s2"], {"n": 2}))
    world.run(3, ("a", ["s1"], {"n": 3, "text": "é" * 600}))
    source = ServedResults(world.pages, world.brokers, world.acknowledgements, look_s=look_s)
    app = Starlette(routes=channel_results(source))
    async with (
        serving(uvicorn.Config(app, ws="websockets-sansio")) as url,
        httpx.AsyncClient(base_url=url, timeout=30) as client,
    ):
        yield Site(world, source, client, url)


def records(page: Any) -> list[int]:
    return [result["result"]["n"] for run in page["runs"] for result in run["results"]]


async def test_a_broker_reads_pages_until_it_has_everything(tmp_path: Path) -> None:
    async with site(tmp_path) as world:
        after, read = 0, []
        while True:
            page = (await world.get(f"{RESULTS}&after={after}&limit=1")).json()
            read += records(page)
            after = page["next"]
            if page["complete"]:
                break
        assert read == [1, 2, 3]
        assert records((await world.get(f"{RESULTS}&after={after}")).json()) == []
        assert (await world.get(f"{RESULTS}&limit=1")).json()["runs"] == [
            {
                "run": RUN + 1_000_000,
                "time": "2023-11-14T22:13:21.000000Z",
                "results": [{"number": 0, "subscriptionIds": ["s1"], "result": {"n": 1}}],
            }
        ]


async def test_a_page_that_can_grow_no_more_is_immutable(tmp_path: Path) -> None:
    """A later run changes no byte of it. The last page is validated by its entity tag."""
    async with site(tmp_path) as world:
        closed = f"{RESULTS}&upto={RUN + 2_000_000}"
        for target in (f"{RESULTS}&limit=1", closed):
            before = await world.get(target)
            assert before.headers["cache-control"] == "private, max-age=31536000, immutable"
        last = await world.get(RESULTS)
        assert last.headers["cache-control"] == "private, no-cache"
        assert (await world.get(RESULTS, **{"if-none-match": last.headers["etag"]})).status_code == 304
        world.world.run(4, ("a", ["s1"], {"n": 4}))
        assert (await world.get(closed)).content == before.content
        assert records((await world.get(RESULTS, **{"if-none-match": last.headers["etag"]})).json()) == [1, 2, 3, 4]


async def test_a_page_is_compressed_for_clients_that_accept_it(tmp_path: Path) -> None:
    async with site(tmp_path) as world:
        packed = await world.get(RESULTS, **{"accept-encoding": "gzip"})
        plain = await world.get(RESULTS, **{"accept-encoding": "identity"})
        assert (packed.headers["content-encoding"], "content-encoding" in plain.headers) == ("gzip", False)
        assert packed.json() == plain.json()
        assert int(packed.headers["content-length"]) < int(plain.headers["content-length"])


async def test_only_the_broker_reads_its_pages(tmp_path: Path) -> None:
    """A signature counts for its own target alone."""
    async with site(tmp_path) as world:
        assert (await world.client.get(RESULTS)).status_code == 401
        signed = SIGNER.fields("r1", f"GET {RESULTS}", at_s=time.time())
        assert (await world.client.get(f"{RESULTS}&after=0", headers=signed)).status_code == 401
        assert (await world.client.get(RESULTS, headers=signed)).status_code == 200


async def test_pages_of_a_public_broker_are_for_every_cache(tmp_path: Path) -> None:
    async with site(tmp_path, public=True) as world:
        page = await world.client.get(f"{RESULTS}&limit=1")
        assert page.headers["cache-control"] == "public, max-age=31536000, immutable"


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/channels/offers/results", 400),
        (f"{RESULTS}&limit=0", 400),
        (f"{RESULTS}&limit=10001", 400),
        (f"{RESULTS}&after=-1", 400),
        (f"{RESULTS}&after=1e9", 400),
        (f"{RESULTS}&upto=x", 400),
        ("/channels/offers/results?broker=nobody", 404),
        ("/channels/nothing/newest", 404),
        ("/channels/nothing/results?broker=a", 404),
        ("/channels/nothing/subscriptions/s1/results", 404),
        ("/channels/offers/subscriptions/nobody/results", 404),
        (f"/channels/offers/subscriptions/nobody/results?after={RUN * 2}", 404),
    ],
)
async def test_a_wrong_request_is_refused_with_a_sentence(tmp_path: Path, target: str, status: int) -> None:
    async with site(tmp_path) as world:
        answer = await world.get(target)
    assert answer.status_code == status
    assert answer.json()["error"]


async def test_a_broker_acknowledges_runs_in_any_order(tmp_path: Path) -> None:
    async with site(tmp_path) as world:
        first, second, third = (RUN + number * 1_000_000 for number in (1, 2, 3))
        for run, upto in ((second, 0), (first, second), (third, third), (first, third)):
            assert (await world.acknowledge(run)).json() == {"channel": "offers", "acknowledged": upto}
        assert (await world.acknowledge(third + 1)).status_code == 404
        assert (await world.acknowledge(True)).status_code == 400
        assert (await world.acknowledge(third, **{"webhook-id": "other"})).status_code == 401
        assert world.world.acknowledgements.upto("a", "offers") == third


async def test_a_large_acknowledgement_is_not_read_to_its_end(tmp_path: Path) -> None:
    async with site(tmp_path) as world:
        answer = await world.client.post("/channels/offers/acknowledgements", content=b" " * 100_000)
    assert answer.status_code == 413


async def test_a_subscriber_that_was_away_misses_nothing_within_the_retention(tmp_path: Path) -> None:
    """Beyond the retention the answer names the instant from which on the results are complete."""
    async with site(tmp_path) as world:
        page = (await world.client.get(f"{MINE}?after={RUN + 1_000_000}")).json()
        assert (records(page), "from" in page) == ([2, 3], False)
        world.world.pages.drop("offers", RUN + 2_000_000)
        late = await world.client.get(f"{MINE}?after={RUN + 1_000_000}")
        assert records(late.json()) == [3]
        assert late.json()["from"]["run"] == RUN + 2_000_001
        assert "immutable" not in late.headers["cache-control"]
        assert "from" not in (await world.client.get(f"{MINE}?after={RUN + 2_000_000}")).json()


async def test_a_long_poll_waits_for_the_next_run(tmp_path: Path) -> None:
    async with site(tmp_path) as world:
        newest = (await world.client.get("/channels/offers/newest")).json()["newest"]
        poll = asyncio.create_task(
            world.client.get(f"/channels/offers/newest?after={newest}", headers={"prefer": "wait=30"})
        )
        await eventually(lambda: bool(world.source.watch._waiters))
        run = world.world.run(4, ("b", ["s2"], {"n": 4}))
        assert (await poll).json()["newest"] == run


async def test_a_stream_of_events_brings_each_run_once_and_resumes_by_its_last_id(tmp_path: Path) -> None:
    async with site(tmp_path) as world:
        stream = {"accept": "text/event-stream"}
        async with world.client.stream("GET", MINE, headers=stream) as answer:
            lines = answer.aiter_lines()
            identity, page = await _event(lines)
            assert records(page) == [1, 2, 3]
            world.world.run(4, ("b", ["s2"], {"n": 9}))
            world.world.run(5, ("a", ["s1"], {"n": 5}))
            identity, page = await _event(lines)
            assert records(page) == [5]
        world.world.run(6, ("a", ["s1"], {"n": 6}))
        async with world.client.stream("GET", MINE, headers={**stream, "last-event-id": identity}) as answer:
            _, page = await _event(answer.aiter_lines())
            assert records(page) == [6]


async def test_a_socket_brings_each_run_once_and_resumes_after_a_run(tmp_path: Path) -> None:
    async with site(tmp_path) as world:
        url = f"{world.url.replace('http', 'ws')}/channels/offers/subscriptions/s1/socket"
        async with connect(f"{url}?after={RUN + 1_000_000}") as socket:
            page = json.loads(await socket.recv())
            assert records(page) == [2, 3]
            world.world.run(4, ("a", ["s1"], {"n": 4}))
            page = json.loads(await socket.recv())
            assert records(page) == [4]
        world.world.run(5, ("a", ["s1"], {"n": 5}))
        async with connect(f"{url}?after={page['next']}") as socket:
            assert records(json.loads(await socket.recv())) == [5]


async def test_a_socket_of_an_unknown_subscription_is_closed_with_its_own_code(tmp_path: Path) -> None:
    async with site(tmp_path) as world:
        url = f"{world.url.replace('http', 'ws')}/channels/offers/subscriptions/nobody/socket"
        async with connect(url) as socket:
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4404


async def test_streams_and_sockets_end_with_the_server_or_after_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that waits ends by itself, so that the server need not cut it; a socket asks its client to come again."""
    async with site(tmp_path) as world:
        url = f"{world.url.replace('http', 'ws')}/channels/offers/subscriptions/s1/socket"
        async with (
            world.client.stream("GET", MINE, headers={"accept": "text/event-stream"}) as answer,
            connect(url) as socket,
        ):
            lines = answer.aiter_lines()
            await _event(lines)
            await socket.recv()
            monkeypatch.setattr("quaestor.live.stream_ends.server_stops", lambda: True)
            assert [line async for line in lines if line] == []
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012
            monkeypatch.undo()
        monkeypatch.setattr("quaestor.live.stream_ends.LONGEST_S", 0.0)
        async with world.client.stream(
            "GET", f"{MINE}?after={RUN * 2}", headers={"accept": "text/event-stream"}
        ) as answer:
            assert [line async for line in answer.aiter_lines() if line.startswith("data")] == []


async def _event(lines: AsyncIterator[str]) -> tuple[str, Any]:
    """Return id and data of the next event."""
    identity = ""
    async for line in lines:
        if line.startswith("id: "):
            identity = line[4:]
        if line.startswith("data: "):
            return identity, json.loads(line[6:])
    raise AssertionError("the stream has ended")
