"""Lifespan, WebSocket, sketch and metrics endpoints."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from quaestor.middleware import QuaestorMiddleware
from quaestor.middleware import lifespan as middleware_lifespan
from tests.end_to_end.site import Site, status_of
from tests.hand_driven import HandEngine

pytestmark = pytest.mark.anyio


async def test_the_engine_starts_before_the_app_and_stops_after_it() -> None:
    engine = HandEngine()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            engine.life.append(f"app {message['type'].removeprefix('lifespan.')}")
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await QuaestorMiddleware(app, quaestor=engine)({"type": "lifespan"}, receive, send)
    assert engine.life == ["start", "app startup", "app shutdown", "stop"]
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_without_a_lifespan_the_engine_starts_once_at_the_first_request() -> None:
    site = Site()
    await asyncio.gather(*(site.get(f"/{n}") for n in range(5)))
    assert site.engine.life == ["start"]


def test_a_loop_that_is_closed_while_its_tasks_are_pending_leaves_no_complaint() -> None:
    """The task that waits for the loop's end is collected with the loop, and awaits nothing then."""
    loop, site = asyncio.new_event_loop(), Site()
    loop.run_until_complete(site.get("/1"))
    (waiting,) = (task for task in asyncio.all_tasks(loop) if task.get_name() == "quaestor-until-loop-ends")
    loop.close()
    coroutine = waiting.get_coro()
    assert inspect.iscoroutine(coroutine)
    coroutine.close()  # as the collector does: RuntimeError if it awaits once more
    assert site.engine.life == ["start"]
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]
    middleware_lifespan._UNTIL_LOOPS_END.discard(waiting)


@pytest.fixture
def nothing_frozen() -> Iterator[None]:
    """A process in which nobody has frozen anything, as an app's is; what the run consists of is frozen again afterwards."""
    gc.unfreeze()
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()
    gc.collect()
    gc.freeze()


async def frozen_at_each_message(engine: HandEngine) -> list[int]:
    """Return the numbers of frozen objects: at the app's start message, after its start, and when the server learned of
    it.
    """
    frozen: list[int] = []
    kept: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        frozen.append(gc.get_freeze_count())
        kept.extend([number] for number in range(1_000))  # what an app loads while it starts
        await send({"type": f"{message['type']}.complete"})

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        frozen.append(gc.get_freeze_count())

    await QuaestorMiddleware(app, quaestor=engine)({"type": "lifespan"}, receive, send)
    return frozen


@pytest.mark.usefixtures("nothing_frozen")
async def test_objects_of_a_started_app_are_kept_from_the_collector() -> None:
    before, after = await frozen_at_each_message(HandEngine())
    assert before == 0
    assert after > 1_000


@pytest.mark.usefixtures("nothing_frozen")
async def test_nothing_is_frozen_where_the_setting_says_so() -> None:
    assert await frozen_at_each_message(HandEngine(freeze_at_start=False)) == [0, 0]


@pytest.mark.usefixtures("nothing_frozen")
async def test_objects_that_an_app_froze_itself_are_all_that_is_frozen() -> None:
    gc.freeze()
    before, after = await frozen_at_each_message(HandEngine())
    assert 0 < after <= before


@pytest.mark.usefixtures("nothing_frozen")
@pytest.mark.parametrize(("own", "then"), [(700, 10_000), (2_000, 10_000), (50, 50), (50_000, 50_000), (0, 0)])
async def test_young_objects_are_collected_less_often_unless_the_app_says_how_often(own: int, then: int) -> None:
    gc.set_threshold(own, 11, 12)
    await frozen_at_each_message(HandEngine())
    assert gc.get_threshold() == (then, 11, 12)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the older thresholds mean something else from Python 3.14")
@pytest.mark.usefixtures("nothing_frozen")
async def test_the_middle_generation_stays_small_where_young_objects_are_collected_less_often() -> None:
    """Its collection walks at most two young generations more than what survives; the oldest is collected as often as before."""
    gc.set_threshold(700, 10, 10)
    await frozen_at_each_message(HandEngine())
    assert gc.get_threshold() == (10_000, 1, 50)


@pytest.mark.usefixtures("nothing_frozen")
@pytest.mark.parametrize("frozen", [True, False])
async def test_how_often_is_left_alone_where_nothing_is_frozen_by_the_cache(frozen: bool) -> None:
    gc.set_threshold(700, 10, 10)
    if frozen:
        gc.freeze()
    await frozen_at_each_message(HandEngine(freeze_at_start=frozen))
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("wanted_ms", [1.0, 0.0])
async def test_threads_take_turns_sooner_once_the_app_has_started(wanted_ms: float) -> None:
    """An invalidation then does not wait for handlers that compute."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    try:
        await frozen_at_each_message(HandEngine(switch_interval_ms=wanted_ms))
        assert sys.getswitchinterval() == pytest.approx((wanted_ms or 5) / 1_000)
    finally:
        sys.setswitchinterval(before)


async def test_websockets_are_passed_on_untouched() -> None:
    engine = HandEngine()
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope, receive, send))

    async def receive() -> Any: ...

    async def send(message: Any) -> None: ...

    scope = {"type": "websocket"}
    await QuaestorMiddleware(app, quaestor=engine)(scope, receive, send)
    assert seen == [(scope, receive, send)]


async def test_the_sketch_is_made_once_a_second_however_many_ask() -> None:
    site = Site()
    answers = await asyncio.gather(*(site.get("/quaestor/sketch") for _ in range(10)))
    assert {answer.content for answer in answers} == {b"sketch 1"}
    assert answers[0].headers["content-type"] == "application/octet-stream"
    assert answers[0].headers["cache-control"] == "public, max-age=1"
    assert answers[0].headers["quaestor-sketch"] == f"made={site.engine.clock.now_ms}, delta=10"
    site.engine.clock.now_ms += 1000
    assert (await site.get("/quaestor/sketch")).content == b"sketch 2"
    assert (await site.client.post("/quaestor/sketch")).status_code == 405
    assert site.runs == 0


async def test_a_clock_set_back_to_the_second_of_a_sketch_does_not_bring_it_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twice within that second, with nobody asking between: the clock alone cannot tell."""
    passed_s = [0.0]
    monkeypatch.setattr("quaestor.middleware.sketch_source.monotonic", lambda: passed_s[0])
    site = Site()
    assert (await site.get("/quaestor/sketch")).content == b"sketch 1"
    site.engine.clock.now_ms += 700
    passed_s[0] += 0.7
    assert (await site.get("/quaestor/sketch")).content == b"sketch 1"
    passed_s[0] += 7_200
    assert (await site.get("/quaestor/sketch")).content == b"sketch 2"


async def test_a_sketch_that_is_down_gives_503_and_is_asked_once_a_second() -> None:
    site = Site()
    site.engine.sketch.down = True
    for _ in range(3):
        answer = await site.get("/quaestor/sketch")
        assert (answer.status_code, answer.headers["cache-control"]) == (503, "no-store")
    assert site.engine.sketch.snapshots == 1
    assert site.engine.count("failures", part="sketch") == 1


async def test_the_sketch_is_refused_while_a_part_of_the_grid_lags() -> None:
    """During a lag the sketch would miss changes, so it is refused: clients revalidate, and fresh entries are still
    hits.
    """
    site = Site()
    assert (await site.get("/quaestor/sketch")).status_code == 200
    site.engine.registry.behind = True
    answer = await site.get("/quaestor/sketch")
    assert (answer.status_code, answer.headers["cache-control"]) == (503, "no-store")
    await site.get()
    assert "hit" in status_of(await site.get())
    site.engine.registry.behind = False
    assert (await site.get("/quaestor/sketch")).status_code == 200


async def test_metrics_are_not_shown_to_strangers() -> None:
    site = Site()
    assert (await site.get("/quaestor/metrics")).headers["content-type"] == "application/json"
    shown = QuaestorMiddleware(site.app, quaestor=HandEngine(), metrics_path="/m")
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=shown),
        base_url="http://x.test",
    ) as client:
        assert "quaestor_requests_total" in (await client.get("/m")).text
