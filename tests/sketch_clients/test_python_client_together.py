"""Many requests of one Python client at once, users beside each other, servers without a sketch: over real HTTP."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable

import httpx
import pytest

from quaestor import Level, QuaestorSyncTransport, QuaestorTransport
from quaestor.client.server_time import Moment
from quaestor.client.sketches import Sketches
from tests.sketch_clients.http_server import Shop
from tests.sketch_clients.shop_client import anyio_backend, client, shop, source, transport, url

pytestmark = pytest.mark.anyio
__all__ = ["anyio_backend", "client", "shop", "transport", "url"]
TASKS = 50


class Held(httpx.AsyncBaseTransport):
    """The way to a server: the first request for a page waits until all the others could have come."""

    def __init__(self) -> None:
        self._network = httpx.AsyncHTTPTransport()
        self.asked = 0
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if "sketch" not in request.url.path:
            self.asked += 1
            self.begun.set()
            await self.go.wait()
        return await self._network.handle_async_request(request)

    async def aclose(self) -> None:
        await self._network.aclose()


async def together(held: Held, *requests: Callable[[], Awaitable[httpx.Response]]) -> list[httpx.Response]:
    """The answers to requests that are all under way before the first is answered."""
    tasks = [asyncio.ensure_future(request()) for request in requests]
    for _ in range(20):
        await asyncio.sleep(0)
    held.go.set()
    return await asyncio.gather(*tasks)


@pytest.mark.parametrize("known", [False, True], ids=["before a sketch is there", "with a sketch"])
async def test_tasks_that_want_one_url_ask_once(url: str, shop: Shop, known: bool) -> None:
    held = Held()
    transport = QuaestorTransport(url, transport=held)
    async with httpx.AsyncClient(transport=transport, base_url=url) as client:
        if known:
            await transport.refresh()
        answers = await together(held, *[lambda: client.get("/a")] * TASKS)
    assert held.asked == 1
    assert {answer.text for answer in answers} == {"0 "}
    assert sorted(str(source(answer)) for answer in answers) == ["memory"] * (TASKS - 1) + ["server"]
    assert sum(answer.extensions["from_cache"] for answer in answers) == TASKS - 1


async def test_tasks_that_revalidate_one_url_ask_once(url: str, shop: Shop) -> None:
    held = Held()
    async with httpx.AsyncClient(transport=QuaestorTransport(url, transport=held), base_url=url) as client:
        held.go.set()
        await client.get("/a")
        shop.sketch_status = 503
        await client.put("/b")
        held.asked = 0
        held.go.clear()
        answers = await together(held, *[lambda: client.get("/a")] * TASKS)
    assert held.asked == 1
    assert {answer.text for answer in answers} == {"0 "}


async def test_only_equal_requests_wait_for_each_other(url: str) -> None:
    """Users and languages apart; what nobody may keep is asked for by each."""
    held = Held()
    async with httpx.AsyncClient(transport=QuaestorTransport(url, transport=held), base_url=url) as client:
        users = ["ann", "bob", "ann", "bob"]
        answers = await together(
            held, *[lambda user=user: client.get("/me?private", headers={"authorization": user}) for user in users]
        )
        assert [answer.text for answer in answers] == [f"0 {user}" for user in users]
        assert held.asked == 2
        held.go.clear()
        nobody = await together(held, *[lambda: client.get("/me?private")] * 3)
        assert [source(answer) for answer in nobody] == ["server"] * 3
        held.go.clear()
        plain = await together(held, *[lambda: client.get("/plain")] * 3)
        assert [source(answer) for answer in plain] == ["passed"] * 3


async def test_a_read_after_an_own_write_does_not_wait_for_one_from_before(url: str, shop: Shop) -> None:
    held = Held()
    async with httpx.AsyncClient(transport=QuaestorTransport(url, transport=held), base_url=url) as client:
        before = asyncio.ensure_future(client.get("/a"))
        await held.begun.wait()
        shop.write("/a")
        write = asyncio.ensure_future(client.put("/a"))
        held.go.set()
        await write
        held.go.clear()
        after = asyncio.ensure_future(client.get("/a"))
        held.go.set()
        assert (await after).text == "2 "
        await before


async def test_a_leader_that_is_cancelled_or_reads_slowly_holds_up_nobody(url: str) -> None:
    held = Held()
    async with httpx.AsyncClient(transport=QuaestorTransport(url, transport=held), base_url=url) as client:
        leader = asyncio.ensure_future(client.get("/a"))
        await held.begun.wait()
        others = [asyncio.ensure_future(client.get("/a")) for _ in range(3)]
        for _ in range(20):
            await asyncio.sleep(0)
        leader.cancel()
        held.go.set()
        assert [(await other).text for other in others] == ["0 "] * 3
        async with client.stream("GET", "/slow"):
            assert (await client.get("/slow")).text == "0 "


def test_threads_that_want_one_url_ask_once(url: str) -> None:
    go, requests = threading.Event(), []

    class HeldInThreads(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            if "sketch" not in request.url.path:
                requests.append(request)
                go.wait(60)
            return super().handle_request(request)

    transport = QuaestorSyncTransport(url, transport=HeldInThreads())
    answers: list[str] = []
    with httpx.Client(transport=transport, base_url=url) as client:
        threads = [threading.Thread(target=lambda: answers.append(client.get("/a").text)) for _ in range(8)]
        for thread in threads:
            thread.start()
        flights = transport._flights._under_way
        while not flights or next(iter(flights.values())).waiting < len(threads) - 1:
            threading.Event().wait(0.001)
        go.set()
        for thread in threads:
            thread.join(60)
    assert answers == ["0 "] * 8
    assert len(requests) == 1


def test_an_anonymous_request_costs_no_user_his_copy(client: httpx.Client, shop: Shop) -> None:
    """Its answer carries no lifetime, as that of a route which does not know who asks; and it is asked for once."""
    ann = {"authorization": "ann"}
    client.get("/me?private", headers=ann)
    shop.fields = {"quaestor-ttl": ""}
    asked_before = len(shop.asked)
    assert source(client.get("/me?private")) == "passed"
    assert len(shop.asked) == asked_before + 1
    assert source(client.get("/me?private", headers=ann)) == "memory"


def test_a_sketch_that_is_missing_is_asked_for_less_and_less() -> None:
    """At most once a minute in the end; and at once again after one that was there."""
    sketches = Sketches()
    asked_s: list[int] = []
    for second in range(600):
        now = Moment(second * 1000.0, second * 1000.0)
        for partition in sketches.due("", 1.0, now):
            asked_s.append(second)
            sketches.failed(partition, "status 404", now)
    assert asked_s[:6] == [0, 1, 3, 7, 15, 31]
    assert len(asked_s) < 20


def test_a_server_whose_answers_carry_no_lifetime_is_asked_for_no_sketch(url: str, shop: Shop) -> None:
    """A test with its own answers in the server's place sees no requests except its own."""
    with httpx.Client(transport=QuaestorSyncTransport(url), base_url=url) as client:
        answers = [client.get("/plain") for _ in range(3)]
    assert [answer.extensions["from_cache"] for answer in answers] == [False] * 3
    assert shop.sketch_asked == []


@pytest.mark.parametrize("delta_s", [1, 2.5])
def test_a_bound_that_no_copy_can_keep_is_warned_of(
    url: str, shop: Shop, caplog: pytest.LogCaptureFixture, delta_s: float
) -> None:
    """Once; and with one below what is known of the server's clock no sketch is loaded again and again."""
    with caplog.at_level(logging.WARNING, "quaestor.client"):
        transport = QuaestorSyncTransport(url, level=Level(delta_s=delta_s))
        with httpx.Client(transport=transport, base_url=url) as client:
            transport.refresh()
            loads = len(shop.sketch_asked)
            for _ in range(3):
                assert client.get("/a", extensions={"quaestor": {"delta_s": 1}}).status_code == 200
    assert [message for message in caplog.messages if f"client.delta_too_small: delta_s={delta_s:g}" in message]
    assert len(caplog.messages) == 1
    assert len(shop.sketch_asked) == loads


def test_answers_say_whether_they_come_from_memory(client: httpx.Client) -> None:
    said = [
        client.get("/a"),
        client.get("/a"),
        client.get("/a", extensions={"quaestor": {"delta_s": 0}}),
        client.get("/a", headers={"range": "bytes=0-0"}),
        client.put("/a"),
    ]
    assert [answer.extensions["from_cache"] for answer in said] == [False, True, True, False, False]
