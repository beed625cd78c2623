"""Request fields that a handler reads decide its answer as if `Vary` named them, under any name."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quaestor.errors import ConfigurationError
from quaestor.middleware.interface import App
from quaestor.settings import Settings
from tests.inputs.orgs import APPS, Choose, Make, is_hit, orgs, raw_app, starlette_app, varies_by

pytestmark = pytest.mark.anyio

FIELDS = [
    "X-Org-Id", "X-Workspace", "X-Customer-Id", "X-Company", "X-Shop", "X-Role", "X-Forwarded-Email", "X-MS-Client-Principal",
    "Accept-Language", "User-Agent", "Origin", "Referer", "X-Forwarded-For", "Sec-CH-UA", "anything",
]  # fmt: skip


@pytest.mark.parametrize("name", FIELDS)
async def test_a_request_with_another_value_gets_its_own_records(name: str, mongo_url: str, prefix: str) -> None:
    """No list of names could be complete: every field that the handler reads counts."""
    async with orgs(starlette_app, name, mongo_url, prefix) as world:
        first = await world.warm("1")
        await world.ask("2")
        await world.warm("2")
        assert is_hit(await world.ask("1"))
        assert varies_by(first) == {name.lower()}


@pytest.mark.parametrize("make", APPS)
async def test_every_framework_s_way_of_asking_is_noticed(make: Make, mongo_url: str, prefix: str) -> None:
    """Compared one after the other, or copied as a whole; in every order of presence and absence."""
    async with orgs(make, "X-Org-Id", mongo_url, prefix) as world:
        for value in (None, "1", "2", None, "3", "1"):
            await world.ask(value)
        for other in ("1", None, "2"):
            warm = await world.warm(other)
            assert varies_by(warm) in ({"x-org-id"}, {"*"})
        runs = world.runs
        for value in ("1", None, "2"):
            assert is_hit(await world.ask(value))
        assert world.runs == runs


@pytest.mark.parametrize("make", APPS)
async def test_fields_that_the_handler_does_not_read_do_not_divide_hits(
    make: Make, mongo_url: str, prefix: str
) -> None:
    """The exception is an application that copies all fields, because its single reads cannot be seen."""
    async with orgs(make, "X-Org-Id", mongo_url, prefix) as world:
        copies = "*" in varies_by(await world.warm("1", **{"User-Agent": "first"}))
        again = await world.ask("1", **{"User-Agent": "second", "X-Other": "1", "Accept-Language": "de"})
        assert is_hit(again) is not copies


async def test_answers_that_all_fields_decided_are_for_nobody_outside(mongo_url: str, prefix: str) -> None:
    async with orgs(APPS[2], "X-Org-Id", mongo_url, prefix) as world:
        warm = await world.warm("1")
        assert warm.headers["vary"] == "*"
        assert warm.headers["cache-control"].startswith("private")


async def test_ignored_fields_do_not_count(mongo_url: str, prefix: str) -> None:
    logged: list[Any] = []

    def make(choose: Choose, name: str) -> App:
        async def page(request: Request) -> Response:
            logged.append((dict(request.headers), request.client and request.client.host))
            return JSONResponse(await choose(request.headers.get(name, "")))

        return Starlette(routes=[Route("/", page)])

    ignored = ("User-Agent", "Accept", "client-address")
    async with orgs(make, "X-Org-Id", mongo_url, prefix, ignored_fields=ignored) as world:
        await world.warm("1", **{"user-agent": "first"})
        assert is_hit(await world.ask("1", **{"user-agent": "second"}))
        assert not is_hit(await world.ask("1", **{"accept-language": "de"}))
        await world.ask("2")
        assert any(fields["user-agent"] == "first" for fields, _ in logged)


def test_ignored_fields_are_read_from_the_environment_and_checked() -> None:
    settings = Settings.from_env({"QUAESTOR_IGNORED_FIELDS": "user-agent, X-Trace,client-address"})
    assert settings.store.ignored_fields == ("user-agent", "X-Trace", "client-address")
    for wrong in ("user-agent", ("user agent",), ("",), ("*",)):
        with pytest.raises(ConfigurationError, match="ignored_fields"):
            Settings(ignored_fields=wrong)  # type: ignore[arg-type]


async def test_requests_without_any_field_are_not_taken_for_others(mongo_url: str, prefix: str) -> None:
    """There is no name to compare with then."""
    async with orgs(raw_app, "X-Org-Id", mongo_url, prefix) as world:
        world.cached.headers.clear()
        for value in (None, "1", None, "2"):
            await world.ask(value)
