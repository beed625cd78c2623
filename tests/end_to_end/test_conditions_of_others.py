"""Conditions on what the cache does not store: the app behind it answers as it would without one, field by field."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from quaestor import cached
from quaestor.middleware import QuaestorMiddleware
from tests.hand_driven import HandEngine, reads
from tests.raw_asgi import Exchanged, exchanged, scope_of

pytestmark = pytest.mark.anyio

Handler = Callable[[Request], Awaitable[Response]]
TAG = b'"v1"'


def by_itself(response: Response, request: Request) -> Response:
    """Evaluate conditions as an app does that does so itself, with a field of its own on both answers."""
    given = {"etag": '"v1"', "x-made-by": "app", "cache-control": response.headers.get("cache-control", "max-age=5")}
    if request.headers.get("if-none-match") == '"v1"':
        return Response(status_code=304, headers={**given, "x-why": "matched"})
    response.headers.update(given)
    return response


async def before_reading(request: Request) -> Response:
    answer = by_itself(PlainTextResponse("rows"), request)
    reads()
    return answer


async def after_reading(request: Request) -> Response:
    reads()
    return by_itself(PlainTextResponse("rows"), request)


async def without_reading(request: Request) -> Response:
    return by_itself(PlainTextResponse("computed"), request)


async def private_after_reading(request: Request) -> Response:
    reads()
    return by_itself(PlainTextResponse("mine", headers={"cache-control": "private"}), request)


async def never_asks(request: Request) -> Response:
    return PlainTextResponse("always whole", headers={"etag": '"v1"'})


async def streams(request: Request) -> Response:
    async def pieces() -> Any:
        yield b"a"
        yield b"b"

    reads()
    return by_itself(StreamingResponse(pieces(), headers={"cache-control": "no-store"}), request)


async def echoes(request: Request) -> Response:
    said = request.headers.get("if-none-match", "nothing")
    reads()
    return PlainTextResponse(said)


async def echoes_copies(request: Request) -> Response:
    said = dict(request.headers).get("if-none-match", "nothing")
    reads()
    return PlainTextResponse(said)


HANDLERS: dict[str, Handler] = {
    "/before": before_reading, "/after": after_reading, "/without": without_reading, "/private": private_after_reading,
    "/never": never_asks, "/streams": streams, "/echoes": echoes, "/copies": echoes_copies,
}  # fmt: skip


class Both:
    """One app bare and behind the cache. runs: of its handlers, both counted."""

    def __init__(self, folder: Path, **further: Any) -> None:
        (folder / "small.txt").write_text("a file")
        (folder / "large.bin").write_bytes(b"x" * 5000)
        self.engine = HandEngine(max_body_bytes=4000)
        self.runs = 0

        async def file(_: Request) -> Response:
            return FileResponse(folder / "small.txt")

        routes = [Route(path, self.counted(handler)) for path, handler in HANDLERS.items()]
        self.bare = Starlette(
            routes=[*routes, Route("/file", file), Mount("/static", StaticFiles(directory=folder, html=True))]
        )
        self.cached = QuaestorMiddleware(self.bare, quaestor=self.engine, **further)

    def counted(self, handler: Handler) -> Handler:
        async def run(request: Request) -> Response:
            self.runs += 1
            return await handler(request)

        return run

    async def get(self, path: str, *fields: tuple[bytes, bytes], bare: bool = False) -> Exchanged:
        return await exchanged(self.bare if bare else self.cached, scope_of(path, *fields), stays=True)


@pytest.fixture
def both(tmp_path: Path) -> Both:
    return Both(tmp_path)


@pytest.mark.parametrize("path", ["/static/small.txt", "/static/large.bin", "/static/none.txt", "/file", "/never"])
@pytest.mark.parametrize("requested", ["nothing", "its tag", "another tag", "its date", "an old date", "anything"])
async def test_files_are_sent_as_the_bare_app_sends_them(both: Both, path: str, requested: str) -> None:
    """Every field and the body equal the bare app's, the first time and later. One field is added: Cache-Status."""
    plain = await both.get(path, bare=True)
    changed = plain.of(b"last-modified") or [b"Wed, 21 Oct 2015 07:28:00 GMT"]
    fields = {
        "nothing": (),
        "its tag": ((b"if-none-match", (plain.of(b"etag") or [TAG])[0]),),
        "another tag": ((b"if-none-match", b'"other"'),),
        "its date": ((b"if-modified-since", changed[0]),),
        "an old date": ((b"if-modified-since", b"Wed, 21 Oct 2015 07:28:00 GMT"),),
        "anything": ((b"if-none-match", b"*"),),
    }[requested]
    expected = await both.get(path, *fields, bare=True)
    for _ in range(3):
        answer = await both.get(path, *fields)
        assert answer.of(b"cache-status")[0].startswith(b"Quaestor; fwd=")
        assert answer.without(b"cache-status") == expected
    if requested == "its tag" and path.startswith("/static/") and "none" not in path:
        assert expected.status == 304, "otherwise this shows nothing"


@pytest.mark.parametrize("path", ["/without", "/before"])
async def test_a_handler_that_decides_before_any_read_decides(both: Both, path: str) -> None:
    """Its own 304 goes out, with the fields that it gave it."""
    expected = await both.get(path, (b"if-none-match", TAG), bare=True)
    answer = await both.get(path, (b"if-none-match", TAG))
    assert expected.status == 304
    assert answer.without(b"cache-status") == expected


@pytest.mark.parametrize("path", ["/private", "/streams"])
async def test_a_client_that_has_an_answer_that_is_not_stored_gets_304_at_once(both: Both, path: str) -> None:
    """The handler ran without the condition, because it had read before; its answer is not stored, and the client has
    it already.
    """
    expected = await both.get(path, (b"if-none-match", TAG), bare=True)
    answer = await both.get(path, (b"if-none-match", TAG))
    assert (answer.status, answer.body) == (304, b"")
    assert sorted(answer.without(b"cache-status").headers) == sorted(expected.without(b"x-why").headers)
    assert both.runs == 2
    other = await both.get(path, (b"if-none-match", b'"other"'))
    assert (other.status, other.body) == (200, (await both.get(path, bare=True)).body)
    again = await both.get(path, (b"if-none-match", TAG))
    assert again.without(b"cache-status") == expected, "from the second time on the handler is known to decide"


async def test_an_answer_that_can_be_stored_is_requested_without_the_condition(both: Both) -> None:
    """A condition must not keep the cache empty.

    A handler that reads first runs unconditionally at once; one that decides first, later.
    """
    assert (await both.get("/after", (b"if-none-match", TAG))).status == 304
    assert b"hit" in (await both.get("/after")).of(b"cache-status")[0]
    assert (await both.get("/before", (b"if-none-match", TAG))).status == 304
    kept = await both.get("/before", (b"if-none-match", TAG))
    assert (kept.status, kept.of(b"cache-status")) == (304, [b"Quaestor; fwd=uri-miss; stored"])
    assert (await both.get("/before")).body == b"rows"
    assert both.runs == 3


@pytest.mark.parametrize("path", ["/echoes", "/copies"])
async def test_an_answer_made_from_a_condition_is_for_its_client_alone(both: Both, path: str) -> None:
    """A client cannot write a page for other clients through the value of its condition."""
    assert (await both.get(path, (b"if-none-match", b'"evil"'))).body == b'"evil"'
    for fields in ((), ((b"if-none-match", b'"evil"'),), ((b"if-none-match", b'"x"'),)):
        assert (await both.get(path, *fields)).body == b"nothing"
    assert both.engine.count("uncacheable", reason="condition") == 1


async def test_answers_declared_without_reads_are_fetched_whole(tmp_path: Path) -> None:
    both = Both(tmp_path, routes={"/static/*": cached(ttl=60)})
    tag = (await both.get("/static/small.txt", bare=True)).of(b"etag")[0]
    assert (await both.get("/static/small.txt", (b"if-none-match", tag))).status == 304
    whole = await both.get("/static/small.txt")
    assert (whole.body, whole.of(b"cache-status")[0][:13]) == (b"a file", b"Quaestor; hit")
