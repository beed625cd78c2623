"""Work that a request leaves behind: which of it can still act in the request's name."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable

import pytest
import uvloop

from quaestor.capture import left_behind, recording
from quaestor.capture.left_behind import LeftBehind
from tests.end_to_end.site import Site, status_of

pytestmark = pytest.mark.anyio

BackEnd = tuple[str, dict[str, object]]
ASYNCIO: BackEnd = ("asyncio", {"loop_factory": asyncio.SelectorEventLoop})
UVLOOP: BackEnd = ("asyncio", {"loop_factory": uvloop.new_event_loop})


@pytest.fixture
def anyio_backend() -> BackEnd:
    """Asyncio's own loop, even where another test has made uvloop the default of its process."""
    return ASYNCIO


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is waited for: what is over is over at once."""
    monkeypatch.setattr(left_behind, "_HANDED_BACK_S", 0)


Start = Callable[[], asyncio.TimerHandle]


async def of_a_request(start: Start) -> tuple[LeftBehind, asyncio.TimerHandle]:
    """Run a handler that starts a timer. Returns the work it has left behind, and the timer; its task is over."""

    async def run() -> tuple[LeftBehind, asyncio.TimerHandle]:
        block = recording()
        with block:
            timer = start()
        return block.left_behind(), timer

    return await asyncio.create_task(run())


def in_30_s() -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(30, lambda: None)


async def test_cancelled_timers_hold_no_request() -> None:
    """The driver cancels a timer for each command, and asyncio keeps it for as long as the command might have taken."""
    left, timer = await of_a_request(in_30_s)
    timer.cancel()
    assert not left.over
    assert await left.tasks() == []
    assert left.over


@pytest.mark.parametrize("anyio_backend", [ASYNCIO, UVLOOP], ids=["asyncio", "uvloop"])
async def test_dropped_timers_hold_no_request(anyio_backend: BackEnd) -> None:
    """A cancelled timer without a reference leaves nothing, on either event loop."""
    left, timer = await of_a_request(in_30_s)
    timer.cancel()
    del timer
    assert await left.tasks() == []
    assert left.over


async def test_a_timer_that_may_still_fire_holds_its_request() -> None:
    """Its function could write in the name of the request."""
    left, timer = await of_a_request(in_30_s)
    assert await left.tasks() == []
    assert not left.over
    timer.cancel()
    assert await left.tasks() == []
    assert left.over


async def test_a_context_that_somebody_else_has_too_holds_its_request() -> None:
    """A cancelled timer says nothing of the others that can act in its context."""
    shared: list[contextvars.Context] = []

    def start() -> asyncio.TimerHandle:
        shared.append(contextvars.copy_context())
        return asyncio.get_running_loop().call_later(30, lambda: None, context=shared[0])

    left, timer = await of_a_request(start)
    timer.cancel()
    assert await left.tasks() == []
    assert not left.over
    del timer  # the loop may have dropped it already
    shared.clear()
    await left.tasks()
    assert left.over


@pytest.mark.parametrize("others_in_s", [5, 600])
async def test_the_timer_of_a_request_is_found_among_very_many(others_in_s: int) -> None:
    """The sockets of a process may have 10,000 timers, which are due sooner or later."""
    loop = asyncio.get_running_loop()
    others = [loop.call_later(others_in_s + number / 1_000, lambda: None) for number in range(10_000)]
    left, timer = await of_a_request(in_30_s)
    timer.cancel()
    assert await left.tasks() == []
    assert left.over
    for other in others:
        other.cancel()


async def test_a_search_among_timers_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is stored as soon as the timers are gone."""
    monkeypatch.setattr(left_behind, "_MOST_TIMERS", 0)
    left, timer = await of_a_request(in_30_s)
    timer.cancel()
    assert await left.tasks() == []
    assert not left.over


async def test_tasks_are_not_searched_for_a_timer_that_the_driver_has_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each command of the asynchronous client leaves such a timer, and a process may run thousands of tasks."""
    left, timer = await of_a_request(in_30_s)
    timer.cancel()
    monkeypatch.setattr(LeftBehind, "_spawned", None)
    assert await left.tasks() == []
    assert left.over


@pytest.mark.parametrize("anyio_backend", [ASYNCIO, UVLOOP], ids=["asyncio", "uvloop"])
async def test_a_timer_of_the_server_holds_no_request(anyio_backend: BackEnd) -> None:
    """With the last piece of an answer servers start the timer of their connection, which runs for seconds. The entry does not
    wait for it."""
    site = Site()
    timers = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.body":
            timers.append(in_30_s())

    found: list[bool] = []
    kept = LeftBehind.tasks

    async def tasks(left: LeftBehind) -> list[asyncio.Task[object]]:
        found.append(left.over)
        return await kept(left)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LeftBehind, "tasks", tasks)
        await site.app(SCOPE, receive, send)
    timers[0].cancel()
    assert found == [True]
    assert "hit" in status_of(await site.get("/s"))


SCOPE = {
    "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "method": "GET", "scheme": "http",
    "path": "/s", "raw_path": b"/s", "query_string": b"", "headers": [(b"host", b"shop.test")], "root_path": "",
}  # fmt: skip
