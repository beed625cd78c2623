"""The order of query parameters: part of the key, unless a route or a setting says that it does not matter."""

from __future__ import annotations

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from quaestor import cached
from quaestor.errors import ConfigurationError
from quaestor.proxy.options import ProxyOptions
from quaestor.settings import Settings
from tests.end_to_end.scripted_origin import PLAIN, Asked, answer, proxy, scripted_origin
from tests.end_to_end.site import Site, status_of
from tests.hand_driven import reads

pytestmark = pytest.mark.anyio


async def sorting(request: Request) -> Response:
    """Rows in the order that the parameters name, one after the other."""
    reads()
    if request.url.path == "/moved":
        return RedirectResponse(f"/items?{request.url.query}", 301)
    return JSONResponse([name for name, _ in request.query_params.multi_items()])


@pytest.mark.parametrize("path", ["/items", "/moved"])
async def test_another_order_is_another_entry(path: str) -> None:
    """Sort orders and redirects are made of the parameters in their order."""
    site = Site(sorting)
    answers = {}
    for query in ("sort_a=1&sort_b=1", "sort_b=1&sort_a=1"):
        answers[query] = await site.get(f"{path}?{query}")
        again = await site.get(f"{path}?{query}")
        assert "hit" in status_of(again)
        assert (again.content, again.headers.get("location")) == (
            answers[query].content,
            answers[query].headers.get("location"),
        )
    first, second = answers.values()
    assert (first.content, first.headers.get("location")) != (second.content, second.headers.get("location"))


async def test_every_order_of_parameters_is_the_same_resource_for_clients_and_purges() -> None:
    """Clients and purges know a page by its parameters, in any order."""
    site = Site(sorting, client_ttl="estimated")
    for query in ("a=1&b=1", "b=1&a=1"):
        await site.get(f"/items?{query}")
    assert site.runs == 2
    assert set(site.engine.sketch.reads) == {"/items?a=1&b=1"}


async def test_an_unsafe_request_outdates_every_order() -> None:
    async def handler(request: Request) -> Response:
        return JSONResponse([*request.query_params], headers={"cache-control": "max-age=60"})

    site = Site(handler, explicit=True)
    for query in ("a=1&b=1", "b=1&a=1"):
        await site.get(f"/items?{query}")
    site.engine.clock.now_ms += 1_000
    await site.client.post("/items?b=1&a=1")
    for query in ("a=1&b=1", "b=1&a=1"):
        assert "hit" not in status_of(await site.get(f"/items?{query}"))


@pytest.mark.parametrize("by", ["setting", "route"])
async def test_a_route_or_setting_that_ignores_the_order_has_one_entry(by: str) -> None:
    """Handlers see one order, so the order of the first request decides nothing."""
    site = Site(sorting, sort_query=True)
    if by == "route":
        site = Site(sorting, routes={"/items": cached(sort_query=True)})
    first = await site.get("/items?sort_b=1&sort_a=1&sort_b=0")
    again = await site.get("/items?sort_b=1&sort_b=0&sort_a=1")
    assert first.json() == ["sort_a", "sort_b", "sort_b"]
    assert ("hit" in status_of(again), again.content) == (True, first.content)
    other = await site.get("/items?sort_b=0&sort_b=1&sort_a=1")
    assert "hit" not in status_of(other), "those of one name keep their order"


async def test_a_route_goes_before_the_setting() -> None:
    site = Site(sorting, sort_query=True, routes={"/items": cached(sort_query=False)})
    await site.get("/items?b=1&a=1")
    assert "hit" not in status_of(await site.get("/items?a=1&b=1"))


async def test_the_origin_behind_a_proxy_is_shown_the_same_order() -> None:
    def script(request: Asked) -> bytes:
        return answer("200 OK", "Cache-Control: max-age=60", body=request.line)

    settings = Settings(explicit=True, grid=False, early_refresh=0.0, sort_query=True)
    for given, expected in ((settings, b"/a?a=1&b=2"), (PLAIN, b"/a?b=2&a=1")):
        async with scripted_origin(script) as origin, proxy(ProxyOptions(origin=origin.url), given) as url:
            async with httpx.AsyncClient() as client:
                response = await client.get(f"{url}/a?b=2&a=1")
            assert response.content.split(b" ")[1] == expected


def test_a_value_that_is_no_truth_value_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="sort_query='yes' is neither True nor False"):
        cached(sort_query="yes")  # type: ignore[arg-type]
