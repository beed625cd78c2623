"""The middleware around an application that forwards: its handler copies a request into a request to a real origin.

The copy of all fields would make each of them an input. Where the app declares that it forwards, the origin's `Vary`
names the fields that decide. A field decides as well if the handler reads it, from the request or from its copy. Answers that
may depend on a client's identity are shared with no other client.
"""

from __future__ import annotations

import urllib.request
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio.to_thread
import httpx
import pytest
import requests
import urllib3
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware
from quaestor.testing.servers import free_port
from tests.end_to_end.origin import Answer, Origin, origin
from tests.hand_driven import HandEngine, reads
from tests.inputs.orgs import APPS, Make, is_hit

pytestmark = pytest.mark.anyio

_OF_CONNECTION = {"connection", "content-length", "date", "host", "keep-alive", "server", "transfer-encoding"}
_OF_CONNECTION_RAW = {name.encode() for name in _OF_CONNECTION}


def as_pairs(request: Request) -> Any:
    return [(name, value) for name, value in request.headers.items() if name not in _OF_CONNECTION]


def as_dict(request: Request) -> Any:
    return {name: value for name, value in dict(request.headers).items() if name not in _OF_CONNECTION}


def as_raw(request: Request) -> Any:
    return [(name, value) for name, value in request.headers.raw if name not in _OF_CONNECTION_RAW]


def as_mutable(request: Request) -> Any:
    copy = request.headers.mutablecopy()
    for name in _OF_CONNECTION:
        del copy[name]
    return dict(copy)


def as_httpx(request: Request) -> Any:
    copy = httpx.Headers(request.headers.items())
    for name in _OF_CONNECTION:
        copy.pop(name, "")
    return copy


def as_structure(request: Request) -> Any:
    return requests.structures.CaseInsensitiveDict(as_dict(request))


def as_urllib3(request: Request) -> Any:
    return urllib3.HTTPHeaderDict(as_dict(request))


def as_text(request: Request) -> Any:
    return {str(name): value for name, value in as_pairs(request)}


def as_formatted(request: Request) -> Any:
    return {f"{name}": value for name, value in as_pairs(request)}


def as_filled_in(request: Request) -> Any:
    return {"%s" % name: value for name, value in as_pairs(request)}  # noqa: UP031


def as_replaced(request: Request) -> Any:
    return {name.replace("_", "-"): value for name, value in as_pairs(request)}


def as_appended(request: Request) -> Any:
    return {"" + name: value for name, value in as_pairs(request)}


def as_appended_raw(request: Request) -> Any:
    return [(b"" + name, value) for name, value in as_raw(request)]


COPIES = (as_pairs, as_dict, as_raw, as_mutable, as_httpx, as_structure, as_urllib3)
REWRITTEN = (as_text, as_formatted, as_filled_in, as_replaced, as_appended, as_appended_raw)


def of_request(request: Request, copy: Any) -> str:
    return request.headers["accept-language"]


def of_copy(request: Request, copy: Any) -> str:
    if isinstance(copy, list):
        copy = dict(copy)
    if any(isinstance(name, bytes) for name in copy):
        return str(copy[b"accept-language"], "latin-1")
    return str(copy["accept-language"])


def by_get(request: Request, copy: Any) -> str:
    return str(copy.get("accept-language", "none"))


def by_prefix(request: Request, copy: Any) -> str:
    return next(value for name, value in request.headers.items() if name.startswith("accept-lang"))


def by_part(request: Request, copy: Any) -> str:
    return next(value for name, value in request.headers.items() if "-lang" in name)


def by_raw_part(request: Request, copy: Any) -> str:
    return next(value for name, value in request.headers.raw if name[7:] == b"language").decode()


class Forwarding:
    """An app whose handler forwards to the origin, behind the middleware.

    aside: a text that the handler makes of the request and its copy, and adds to the origin's answer.
    """

    def __init__(self, behind: Origin, copied: Callable[[Request], Any], *, forwards: bool) -> None:
        self.behind = behind
        self.aside: Callable[[Request, Any], str] = lambda request, copy: ""
        self._copied = copied
        self._client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{behind.port}", trust_env=False)
        app = Starlette(routes=[Route("/{path:path}", self._forward)])
        self.quaestor = Quaestor(explicit=True, grid=False)
        cached: Any = QuaestorMiddleware(app, quaestor=self.quaestor, forwards=forwards)
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(cached), base_url="http://site")

    async def _forward(self, request: Request) -> Response:
        copy = self._copied(request)
        answer = await self._client.request(request.method, request.url.path, params=request.query_params, headers=copy)
        fields = {name: value for name, value in answer.headers.items() if name not in _OF_CONNECTION}
        return Response(answer.content + self.aside(request, copy).encode(), answer.status_code, headers=fields)

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


@pytest.fixture(params=COPIES)
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


@pytest.mark.parametrize("aside", [of_request, of_copy])
async def test_a_field_that_the_handler_reads_by_its_name_decides_all_the_same(
    site: Forwarding, aside: Callable[[Request, Any], str]
) -> None:
    """The origin knows nothing of what the handler does with it, whether it asks the request or its copy."""
    site.aside = aside
    await each_language_has_its_answer(site)


async def each_language_has_its_answer(site: Forwarding) -> None:
    says(site, cache_control="max-age=60")
    languages = ["en", "de", "en", "de"]
    texts = [await site.get(accept_language=language) for language in languages]
    assert [text[-2:] for text in texts] == languages
    assert site.behind.count("/a?b=1") == 2


@pytest.mark.parametrize("copied", REWRITTEN)
async def test_a_copy_with_rewritten_names_cannot_note_so_each_field_decides(copied: Callable[[Request], Any]) -> None:
    """Python makes a plain text of a name that is formatted or joined: what the handler reads from it is not seen."""
    with origin(free_port()) as behind:
        site = Forwarding(behind, copied, forwards=True)
        site.aside = of_copy
        await each_language_has_its_answer(site)
        await site.close()


@pytest.mark.parametrize("aside", [by_prefix, by_part, by_raw_part])
async def test_a_handler_that_looks_into_the_names_depends_on_each_field(aside: Callable[[Request, Any], str]) -> None:
    with origin(free_port()) as behind:
        site = Forwarding(behind, as_pairs, forwards=True)
        site.aside = aside
        await each_language_has_its_answer(site)
        await site.close()


@pytest.mark.parametrize("make", APPS)
async def test_a_field_that_a_handler_reads_by_its_name_decides_in_each_framework(make: Make) -> None:
    """Frameworks keep the fields in mappings of their own. Litestar's is of C code, so there each field decides."""

    async def chosen(language: str) -> list[str]:
        return [language]

    app = make(chosen, "accept-language")

    async def storable(scope: Any, receive: Any, send: Any) -> None:
        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (b"cache-control", b"max-age=60")]}
            await send(message)

        await app(scope, receive, sent)

    cached: Any = QuaestorMiddleware(storable, quaestor=HandEngine(explicit=True), forwards=True)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(cached), base_url="http://site") as http:
        for language in ("en", "de", "en"):
            answer = await http.get("/", headers={"accept-language": language})
            assert answer.json() == [language]
        assert is_hit(answer)


async def test_a_missing_field_that_is_looked_up_in_a_mapping_of_the_client_decides() -> None:
    """A mapping written in Python compares each name, so the look-up is seen although it finds nothing."""
    with origin(free_port()) as behind:
        site = Forwarding(behind, as_httpx, forwards=True)
        site.aside = by_get
        says(site, cache_control="max-age=60")
        assert (await site.get()).endswith("none")
        assert (await site.get(accept_language="de")).endswith("de")
        await site.close()


def by_requests(url: str, fields: Any) -> httpx.Response:
    answer = requests.get(url, headers=fields, timeout=5)
    return httpx.Response(answer.status_code, headers=dict(answer.headers), content=answer.content)


def by_urllib3(url: str, fields: Any) -> httpx.Response:
    with urllib3.PoolManager() as pool:
        answer = pool.request("GET", url, headers=fields)
        return httpx.Response(answer.status, headers=dict(answer.headers), content=answer.data)


def by_urllib(url: str, fields: Any) -> httpx.Response:
    with urllib.request.urlopen(urllib.request.Request(url, headers=fields), timeout=5) as answer:
        return httpx.Response(answer.status, headers=dict(answer.headers), content=answer.read())


@pytest.mark.parametrize("by", [by_requests, by_urllib3, by_urllib])
async def test_the_copy_that_a_client_makes_of_the_fields_decides_nothing(
    by: Callable[[str, Any], httpx.Response],
) -> None:
    """Clients format and rewrite the names for their request. Only the origin can use that request."""
    with origin(free_port()) as behind:
        behind.default = Answer(headers={"cache-control": "max-age=60"})

        async def forward(request: Request) -> Response:
            url = f"http://127.0.0.1:{behind.port}/a?b=1"
            answer = await anyio.to_thread.run_sync(by, url, as_dict(request))
            return Response(
                answer.content, answer.status_code, headers={"cache-control": answer.headers["cache-control"]}
            )

        quaestor = Quaestor(explicit=True, grid=False)
        app: Any = QuaestorMiddleware(Starlette(routes=[Route("/", forward)]), quaestor=quaestor, forwards=True)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site") as http:
            texts = [(await http.get("/", headers={"user-agent": agent})).text for agent in ("one", "two", "one")]
        await quaestor.stop()
        assert texts == ["/a?b=1 #1"] * 3
        assert behind.asked[0].headers["user-agent"] == "one"


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
