"""The parts of an exchange by themselves: what a handler is shown, how its answer is held back, when its body counts."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import httpx
import pytest

from quaestor.middleware import QuaestorMiddleware
from quaestor.middleware.asked_scope import recorded
from quaestor.middleware.bodies import UnkeyedBody
from quaestor.middleware.context import ExchangeContext, ExchangeParts
from quaestor.middleware.handler_run import HandlerRun
from quaestor.middleware.handler_scope import handler_scope
from quaestor.middleware.headers import HeaderPolicy
from quaestor.middleware.held_answer import HeldAnswer, ReleaseTimer
from quaestor.middleware.interface import Message
from quaestor.middleware.quarantines import Quarantines
from quaestor.middleware.refresh import Refreshes
from quaestor.middleware.routes import Routes
from quaestor.middleware.verification import Verifications
from quaestor.read_path.asked_fields import AskedFields
from quaestor.read_path.request import inspect
from tests.hand_driven import HandEngine, reads

RawHeaders = list[tuple[bytes, bytes]]


async def nothing(*_: Any) -> Any: ...


def context(*headers: tuple[bytes, bytes], query: bytes = b"") -> ExchangeContext:
    """Of a GET with these fields."""
    engine = HandEngine()
    routes = Routes(nothing)
    fields = [(b"host", b"shop.test"), *headers]
    scope = {
        "type": "http", "method": "GET", "scheme": "http", "path": "/a", "raw_path": b"/a", "root_path": "",
        "query_string": query, "headers": fields,
    }  # fmt: skip
    facts = inspect(fields)
    plan = routes.plan(scope, host=facts.host, raw_path=b"/a", claimed=facts.claims)
    assert plan.target is not None
    quarantines = Quarantines(engine.read_path, routes)
    verifications = Verifications(nothing, engine.read_path, quarantines)
    parts = ExchangeParts(
        app=nothing, read_path=engine.read_path, outgoing=HeaderPolicy(engine.settings, ()), routes=routes,
        refreshes=Refreshes(engine.telemetry, engine.read_path.process.supervisor),
        verifications=verifications, quarantines=quarantines,
    )  # fmt: skip
    return ExchangeContext(
        parts=parts, scope=scope, receive=nothing, send=nothing, facts=facts, target=plan.target, plan=plan
    )


# The scope that a handler sees


def test_a_request_that_is_keyed_as_it_is_reaches_its_handler_as_it_came() -> None:
    """The scope differs only in a state to write into; outer middleware receives the application's changes of it."""
    plain = context((b"accept", b"text/html"), query=b"a=1")
    shown = recorded(handler_scope(plain, [], AskedFields(), whole=True), AskedFields())
    assert dict(shown) == {**plain.scope, "state": {}}


def test_conditions_are_kept_from_a_handler_whose_answer_others_wait_for() -> None:
    """A condition would reduce the answer for all waiting clients to a 304."""
    request = context((b"if-none-match", b'"x"'), (b"accept", b"text/html"))
    shown = handler_scope(request, [], AskedFields(), whole=True)
    assert shown["headers"] == [(b"host", b"shop.test"), (b"accept", b"text/html")]
    assert handler_scope(request, [], AskedFields(), whole=False)["headers"] == request.scope["headers"]


@pytest.mark.parametrize("whole", [False, True])
def test_validators_of_a_stored_answer_replace_the_client_s_conditions(whole: bool) -> None:
    """With the client's condition, a 304 would be about the client's copy instead of the stored one."""
    request = context((b"if-none-match", b'"client"'))
    shown = handler_scope(request, [(b"if-none-match", b'"stored"')], AskedFields(), whole=whole)
    assert shown["headers"] == [(b"host", b"shop.test"), (b"if-none-match", b'"stored"')]
    assert (b"if-none-match", b'"client"') in request.scope["headers"], "the request itself stays as it was"


def test_fields_outside_the_key_are_hidden() -> None:
    """Tracking parameters, and of `Forwarded` all but host and scheme: nobody decides by them what others are given."""
    request = context((b"forwarded", b"for=203.0.113.7;host=shop.test"), query=b"utm_source=x&a=1")
    shown = handler_scope(request, [], AskedFields(), whole=True)
    assert shown["query_string"] == b"a=1"
    assert shown["headers"][-1] == (b"forwarded", b"host=shop.test")


# An answer that is held back


def test_withheld_bytes_are_handed_out_once() -> None:
    """Before the first piece there is no body at all, which is not the same as an empty one."""
    held = HeldAnswer()
    held.start(200, [(b"X", b"1")])
    assert held.release().body is None
    held.add(b"")
    assert held.release().body == b""
    held.add(b"ab")
    held.add(b"c")
    released = held.release()
    assert (released.status, released.headers, released.body, released.confirmed) == (
        200,
        [(b"X", b"1")],
        b"abc",
        False,
    )
    assert held.release().body is None
    assert held.size == 3, "what was passed on still counts"


def test_a_confirmed_answer_takes_the_place_of_the_304() -> None:
    """Status, fields and body are those of what was stored."""
    held = HeldAnswer()
    held.start(304, [])
    held.confirm(200, [(b"etag", b'"1"')], b"stored")
    released = held.release()
    assert (released.status, released.body, released.confirmed) == (200, b"stored", True)


@pytest.mark.anyio
async def test_an_answer_in_pieces_is_released_once_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pieces come, and a client that has left is no error of the handler."""
    monkeypatch.setattr("quaestor.middleware.held_answer.HOLD_S", 0.0)
    begun, go_on = asyncio.Event(), asyncio.Event()
    released = []

    async def release() -> None:
        begun.set()
        await go_on.wait()
        released.append(1)
        raise OSError("the client has left")

    timer = ReleaseTimer(release)
    for _ in range(3):
        timer.begin()
    await begun.wait()
    stopping = asyncio.create_task(timer.stop(HandEngine().telemetry))
    go_on.set()
    await stopping
    assert released == [1]


@pytest.mark.anyio
async def test_an_answer_that_is_whole_in_time_is_not_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """stop() comes first."""
    monkeypatch.setattr("quaestor.middleware.held_answer.HOLD_S", 60.0)
    timer = ReleaseTimer(nothing)
    timer.begin()
    await timer.stop(HandEngine().telemetry)


def runs() -> list[HandlerRun]:
    """Every run of a handler in this process."""
    return [run for run in gc.get_objects() if type(run) is HandlerRun]


@pytest.mark.anyio
@pytest.mark.parametrize("status", [200, 500])
async def test_nothing_of_a_miss_waits_for_the_collector_of_cycles(status: int) -> None:
    """Stored or handed on: its run, and what that holds of the request, is freed when it is answered."""

    async def page(scope: Any, receive: Any, send: Any) -> None:
        reads()
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"1"})

    app = QuaestorMiddleware(page, quaestor=HandEngine())
    gc.collect()
    earlier = runs()  # of other tests, which something else still holds
    gc.disable()
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop.test") as client:
            for number in range(3):
                assert "fwd=uri-miss" in (await client.get(f"/{number}")).headers["cache-status"]
        assert not [run for run in runs() if not any(run is known for known in earlier)]
    finally:
        gc.enable()


# Bodies that are not part of the key


@pytest.mark.anyio
@pytest.mark.parametrize(("body", "announced", "seen"), [(b"", False, False), (b"x", False, True), (b"x", True, False)])
async def test_only_a_body_that_no_field_announced_is_noted(body: bytes, announced: bool, seen: bool) -> None:
    """One that was announced was seen to before the handler ran."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    unkeyed = UnkeyedBody(receive, announced=announced)
    assert (await unkeyed.receive())["body"] == body
    assert unkeyed.seen is seen
