"""The scope of a request as middlewares around the cache see it after the app has returned."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from tests.end_to_end.site import Site
from tests.hand_driven import reads

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("earlier", [True, False])
async def test_state_that_is_set_after_the_answer_is_handed_back(earlier: bool) -> None:
    """By a background task, after the state was handed back with the answer."""

    async def handler(request: Request) -> Response:
        reads()
        if earlier:
            request.state.before = 1

        async def later() -> None:
            request.state.after = 2

        return PlainTextResponse("x", background=BackgroundTask(later))

    site = Site(handler)
    scope: dict[str, Any] = {
        "type": "http", "asgi": {"version": "3.0"}, "method": "GET", "scheme": "http", "path": "/s", "raw_path": b"/s",
        "query_string": b"", "headers": [(b"host", b"shop.test")], "root_path": "", "state": {},
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None: ...

    await site.app(scope, receive, send)
    assert scope["state"] == ({"before": 1} if earlier else {}) | {"after": 2}
