"""The middleware around an application that forwards: its handler copies a request into a request to a real origin.

The copy of all fields would make each of them an input. Where the app declares that it forwards, the origin's `Vary`
names the
fields that decide. Answers that may depend on a client's identity are shared with no other client.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware
from quaestor.testing.servers import free_port
from tests.end_to_end.origin import Answer, Origin, origin
from tests.hand_driven import HandEngine, reads

pytestmark = pytest.mark.anyio

_OF_CONNECTION = {"connection", "content-length", "date", "host", "keep-alive", "server", "transfer-encoding"}
_OF_CONNECTION_RAW = {name.encode() for name in _OF_CONNECTION}


def as_pairs(request: Request) -> Any:
    return [(name, value) for name, value in request.headers.items() if name not in _OF_CONNECTION]


def as_dict(request: Request) -> Any:
    return {name: value for name, value in dict(request.headers).items() if name not in _OF_CONNECTION}


def as_raw(request: Request) -> Any:
    return [(name, value) for name, value in request.headers.raw if name not in _OF_CONNECTION_RAW]


class Forwarding:
    """An app whose handler forwards to the origin, behind the middleware.

    branch: a field that the handler reads by its name besides.
    of_copy: it reads it from its copy of the fields.
    """

    def __init__(self, behind: Origin, copied: Callable[[Request], Any], *, forwards: bool) -> None:
        self.behind = behind
        self.branch = ""
        self.of_copy = False
        self._copied = copied
        self._client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{behind.port}", trust_env=False)
        app = Starlette(routes=[Route("/{path:path}", self._forward)])
        self.quaestor = Quaestor(explicit=True, grid=False)
        cached: Any = QuaestorMiddleware(app, quaestor=self.quaestor, forwards=forwards)
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(cached), base_url="http://site")

    async def _forward(self, request: Request) -> Response:
        copy = self._copied(request)
        answer = await self._client.request(request.method, request.url.path, params=request.query_params, headers=copy)
        aside = ""
        if self.branch:
            aside = self._aside(dict(copy) if self.of_copy else request.headers)
        fields = {name: value for name, value in answer.headers.items() if name not in _OF_CONNECTION}
        return Response(answer.content + aside.encode(), answer.status_code, headers=fields)

    def _aside(self, fields: Any) -> str:
        raw = self.of_copy and self._copied is as_raw
        value: str = fields[self.branch.encode()].decode() if raw else fields[self.branch]
        return value

    async def get(self, **fields: str) -> str:
        answer = await self.http.get(
            "/a?b=1", headers={name.replace("_", "-"): value for name, value in fields.items()}
        )
        assert answer.status_code == 200
        return answer.text

    async def close(self) -> None:
        await self.http.aclose()
        await self.quaestor.stop()
        await self._client.aclose()


@pytest.fixture(params=[as_pairs, as_dict, as_raw])
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Forwarding]:
    with origin(free_port()) as behind:
        made = Forwarding(behind, request.param, forwards=True)
        yield made
        await made.close()


def says(site: Forwarding, **fields: str) -> None:
    site.behind.default = Answer(headers={name.replace("_", "-"): value for name, value in fields.items()})


async def test_clients_of_every_kind_are_given_one_answer_of_the_origin(site: Forwarding) -> None:
    """Neither browser nor language decides, for the origin does not vary by them. Each field reaches it all the same."""
    says(site, cache_control="max-age=60")
    texts = [await site.get(user_agent=agent, accept_language=agent) for agent in ("one", "two", "three")]
    assert texts == ["/a?b=1 #1"] * 3
    assert site.behind.asked[0].headers["user-agent"] == "one"


async def test_the_vary_of_the_origin_names_the_fields_that_decide(site: Forwarding) -> None:
    says(site, cache_control="max-age=60", vary="Accept-Language")
    requests = [("en", "one"), ("de", "one"), ("en", "two"), ("de", "two")]
    texts = [await site.get(accept_language=language, user_agent=agent) for language, agent in requests]
    assert texts == ["/a?b=1 #1", "/a?b=1 #2", "/a?b=1 #1", "/a?b=1 #2"]


@pytest.mark.parametrize(
    "mine",
    [
        {"cookie": "session=ann"},
        {"authorization": "Bearer ann"},
        {"x_forwarded_email": "ann@site"},
        {"x_api_key": "ann"},
    ],
    ids=str,
)
async def test_possibly_personal_answers_are_given_to_nobody_else(site: Forwarding, mine: dict[str, str]) -> None:
    """The origin says `max-age` and nothing of credentials: an answer passes neither from a client with some, nor to one."""
    says(site, cache_control="max-age=60")
    others = {name: value.replace("ann", "bob") for name, value in mine.items()}
    texts = [await site.get(**fields) for fields in (mine, others, {}, mine, others)]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("control", ["private, max-age=60", "no-store", ""])
async def test_answers_that_the_origin_does_not_share_are_fetched_each_time(site: Forwarding, control: str) -> None:
    says(site, cache_control=control)
    texts = [await site.get() for _ in range(3)]
    assert len(set(texts)) == 3


@pytest.mark.parametrize("of_copy", [False, True])
async def test_a_field_that_the_handler_reads_by_its_name_decides_all_the_same(site: Forwarding, of_copy: bool) -> None:
    """The origin knows nothing of what the handler does with it, whether it asks the request or its copy."""
    site.of_copy = of_copy
    says(site, cache_control="max-age=60")
    site.branch = "accept-language"
    languages = ["en", "de", "en", "de"]
    texts = [await site.get(accept_language=language) for language in languages]
    assert [text[-2:] for text in texts] == languages
    assert site.behind.count("/a?b=1") == 2


async def test_an_answer_that_is_made_of_reads_too_is_not_the_origins() -> None:
    """The handler's use of the fields is unknown then, so each field decides."""

    async def page(request: Request) -> Response:
        reads()
        return PlainTextResponse(
            dict(request.headers).get("accept-language", ""), headers={"cache-control": "max-age=60"}
        )

    app = Starlette(routes=[Route("/", page)])
    cached: Any = QuaestorMiddleware(app, quaestor=HandEngine(explicit=True), forwards=True)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(cached), base_url="http://site") as http:
        for language in ("en", "de", "en"):
            answer = await http.get("/", headers={"accept-language": language})
            assert answer.text == language
        assert "Quaestor; hit" in answer.headers["cache-status"]


@pytest.mark.parametrize("copied", [as_pairs, as_dict, as_raw])
async def test_without_the_declaration_each_copied_field_decides(copied: Callable[[Request], Any]) -> None:
    """The cache cannot know where the copy goes, so no request gets an answer that another request decided."""
    with origin(free_port()) as behind:
        site = Forwarding(behind, copied, forwards=False)
        says(site, cache_control="max-age=60")
        texts = [await site.get(user_agent=agent) for agent in ("one", "two", "one")]
        assert texts == ["/a?b=1 #1", "/a?b=1 #2", "/a?b=1 #1"]
        await site.close()
