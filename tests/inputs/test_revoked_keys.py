"""A key revoked in a process's memory is refused from then on, although no write to the database reports it."""

from __future__ import annotations

from typing import Annotated, Any

import httpx
import pytest
from fastapi import FastAPI, Header, HTTPException, Request
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from quaestor import cached, header, per_user, public
from quaestor.middleware import QuaestorMiddleware
from quaestor.middleware.interface import App
from tests.hand_driven import HandEngine, reads
from tests.inputs.orgs import is_hit
from tests.inputs.verified_site import verified_site
from tests.support import eventually

pytestmark = pytest.mark.anyio

NAMES = [
    "X-Key", "X-Shop-Key", "X-Accesskey", "X-Key-Id", "Signature", "X-Signature", "DPoP", "X-License", "X-Pin", "X-OTP", "x_key",
]  # fmt: skip


class Wanted(BaseModel):
    x_key: str = ""


class Keys:
    """An app that answers requests with a key in `valid`, and counts them; `public` answers requests without a key."""

    def __init__(self) -> None:
        self.valid = {"good"}
        self.runs = 0

    def answer(self, key: str) -> str:
        self.runs += 1
        reads()
        if key and key not in self.valid:
            raise HTTPException(403)
        return f"for {key or 'anybody'}"


def by_parameter(keys: Keys, name: str, **declared: Any) -> App:
    app = FastAPI()
    parameter = Header(default="", alias=name)

    @app.get("/")
    @cached(**declared)
    async def page(key: str = parameter) -> str:
        return keys.answer(key)

    return app


def by_model(keys: Keys, name: str) -> App:
    app = FastAPI()

    @app.get("/")
    async def page(wanted: Annotated[Wanted, Header()]) -> str:
        return keys.answer(wanted.x_key)

    return app


def by_looking(keys: Keys, name: str) -> App:
    async def page(request: Request) -> Response:
        return PlainTextResponse(keys.answer(request.headers.get(name, "")))

    return Starlette(routes=[Route("/", page)])


def by_copying(keys: Keys, name: str) -> App:
    async def page(request: Request) -> Response:
        return PlainTextResponse(keys.answer(dict(request.headers).get(name.lower(), "")))

    return Starlette(routes=[Route("/", page)])


def client_of(app: App) -> httpx.AsyncClient:
    cache = QuaestorMiddleware(app, quaestor=HandEngine())
    return httpx.AsyncClient(transport=httpx.ASGITransport(cache, raise_app_exceptions=False), base_url="http://site")  # type: ignore[arg-type]


async def refused_once_revoked(app: App, keys: Keys, name: str) -> None:
    async with client_of(app) as http:
        for _ in range(2):
            answer = await http.get("/", headers={name: "good"})
            assert (answer.status_code, answer.text.strip('"')) == (200, "for good")
            assert "stored" not in answer.headers["cache-status"]
        keys.valid.clear()
        assert (await http.get("/", headers={name: "good"})).status_code == 403


@pytest.mark.parametrize("name", NAMES)
async def test_a_header_parameter_that_looks_like_a_key_is_looked_at_every_time(name: str) -> None:
    """A key under any name is checked every time; the reason is reported, and no cache outside may keep the answer."""
    keys = Keys()
    await refused_once_revoked(by_parameter(keys, name), keys, name)


@pytest.mark.parametrize("make", [by_model, by_looking, by_copying])
async def test_every_way_of_asking_for_a_key_is_noticed(make: Any) -> None:
    keys = Keys()
    await refused_once_revoked(make(keys, "X-Key"), keys, "X-Key")


async def test_the_reason_is_reported_and_no_cache_outside_may_keep_the_answer() -> None:
    async with client_of(by_parameter(Keys(), "X-Key")) as http:
        answer = await http.get("/", headers={"x-key": "good"})
        assert "credentials" in answer.headers["cache-status"]
        assert "private" in answer.headers["cache-control"]


@pytest.mark.parametrize("make", [by_parameter, by_looking])
async def test_a_request_without_a_key_is_answered_from_the_cache(make: Any) -> None:
    """A request without a key is a hit also after one with a key, and no request gets the answer of another key."""
    keys = Keys()
    async with client_of(make(keys, "X-Key")) as http:
        for fields, text in (({}, "for anybody"), ({"x-key": "good"}, "for good"), ({}, "for anybody")):
            answer = await http.get("/", headers=fields)
            assert answer.text.strip('"') == text
        assert is_hit(answer)


@pytest.mark.parametrize(
    "name", ["Idempotency-Key", "Sec-WebSocket-Key", "X-Keyword", "X-Pinned", "X-Design", "X-Passage"]
)
async def test_names_that_open_nothing_are_keyed_as_ever(name: str) -> None:
    async with client_of(by_looking(Keys(), name)) as http:
        await http.get("/", headers={name: "good"})
        assert is_hit(await http.get("/", headers={name: "good"}))


@pytest.mark.parametrize("scope", [public(), per_user(by=header("X-Key"))])
async def test_a_declared_scope_is_the_applications_word(scope: Any) -> None:
    """A declared scope allows storage; the parameter stays in the key, so no request gets the answer of another key."""
    keys = Keys()
    keys.valid.add("other")
    async with client_of(by_parameter(keys, "X-Key", scope=scope)) as http:
        for key in ("good", "other", "good"):
            answer = await http.get("/", headers={"x-key": key})
            assert answer.json() == f"for {key}"
        assert is_hit(answer)


async def test_keys_that_no_name_gives_away_are_found_by_verification(mongo_url: str, prefix: str) -> None:
    """A field that looks like nothing, compared with memory: the handler is asked again, and its answer differs."""
    staff = {"ann"}

    async def by_desk(request: Request) -> str:
        if request.headers.get("x-desk") not in staff:
            raise HTTPException(403)
        return "papers"

    async with verified_site(mongo_url, prefix) as site:
        site.source = by_desk

        async def hit() -> bool:
            return is_hit(await site.http.get("/groups/1", headers={"x-desk": "ann"}))

        await eventually(hit)
        staff.clear()

        async def refused() -> bool:
            return (await site.http.get("/groups/1", headers={"x-desk": "ann"})).status_code == 403

        await eventually(refused)
