"""The middleware in front of real Starlette and FastAPI apps: what is stored, and when it is not served any more."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from quaestor.errors import NotCacheableError, RegistrationRefusedError
from tests.end_to_end.site import Site, status_of
from tests.hand_driven import reads

pytestmark = pytest.mark.anyio


async def test_the_second_get_is_answered_without_the_handler() -> None:
    site = Site()
    first, second = await site.get(), await site.get()
    assert site.runs == 1
    assert first.content == second.content
    assert status_of(first) == "Quaestor; fwd=uri-miss; stored"
    assert status_of(second) == "Quaestor; hit; ttl=60"
    assert first.headers["etag"] == second.headers["etag"]
    assert first.headers["etag"].startswith('"')
    assert site.engine.count("requests", outcome="hit") == 1
    assert site.engine.count("requests", outcome="miss") == 1


async def test_age_grows_and_an_expired_entry_is_not_served() -> None:
    site = Site()
    await site.get()
    site.engine.clock.now_ms += 10_900
    hit = await site.get()
    assert (hit.headers["age"], status_of(hit)) == ("10", "Quaestor; hit; ttl=49")
    site.engine.clock.now_ms += 49_100
    assert "stored" in status_of(await site.get())
    assert site.runs == 2


async def test_a_dead_registration_is_never_served_again() -> None:
    site = Site()
    await site.get()
    site.engine.registry.kill()
    site.version = 2
    assert (await site.get()).json()["version"] == 2
    assert site.runs == 2
    assert (await site.get()).json()["version"] == 2
    assert site.runs == 2


async def test_nothing_is_served_from_cache_while_the_grid_cannot_vouch_and_nobody_may_keep_the_answer() -> None:
    site = Site()
    await site.get()
    site.engine.registry.up = False
    answer = await site.get()
    assert site.runs == 2
    assert answer.headers["cache-control"] == "no-store"
    assert status_of(answer) == "Quaestor; fwd=bypass; detail=not-serving"
    site.engine.registry.up = True
    assert "hit" in status_of(await site.get())


async def test_keys_keep_the_order_of_parameters_and_hosts_apart() -> None:
    site = Site()
    await site.get("/items?b=1&a=2")
    assert "hit" not in status_of(await site.get("/items?a=2&b=1"))
    assert "hit" in status_of(await site.get("/items?b=1&a=2"))
    assert "hit" not in status_of(await site.get("/items?a=2&b=1", host="other.test"))
    assert "hit" not in status_of(await site.get("/items?a=1&b=2"))


async def test_the_watermark_is_taken_before_the_handler_runs() -> None:
    async def handler(request: Request) -> Response:
        site.engine.registry.newest = 99
        reads()
        return PlainTextResponse("ok")

    site = Site(handler)
    site.engine.registry.newest = 41
    await site.get()
    [(_, since)] = site.engine.registry.registered
    assert since == 41


async def test_a_registration_that_dies_while_the_answer_is_stored_takes_the_answer_with_it() -> None:
    site = Site()

    class Deadly(type(site.engine.index)):
        async def add(self, dependent: Any) -> None:
            await super().add(dependent)
            site.engine.registry.kill(*dependent.registrations)

    site.engine.read_path.admission.announcement._index = Deadly()
    answer = await site.get()
    assert answer.headers["cache-control"] == "no-store"
    assert "etag" not in answer.headers
    assert site.engine.count("uncacheable", reason="died") == 1
    assert site.engine.registry.leases == {"test:1": 0}, "certainly not stored: the grid may forget it"
    await site.get()
    assert site.runs == 2


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RegistrationRefusedError("too slow"), "refused"),
        (NotCacheableError(("view",)), "view"),
        (ZeroDivisionError("a mistake"), "failed"),
    ],
)
async def test_an_answer_whose_registration_raises_goes_out_and_may_not_be_kept(error: Exception, reason: str) -> None:
    site = Site()

    async def refuse() -> None:
        raise error

    site.engine.registry.before_register = refuse
    answer = await site.get()
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert site.engine.count("uncacheable", reason=reason) == 1
    site.engine.registry.before_register = None
    site.engine.clock.now_ms += 10_000
    await site.get()
    assert "hit" in status_of(await site.get())


async def test_a_sketch_that_is_down_costs_caching_not_answers() -> None:
    site = Site(client_ttl="estimated")
    site.engine.sketch.down = True
    answer = await site.get()
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert site.engine.count("failures", part="sketch") == 1
    assert len(site.engine.store) == 0
    site.engine.sketch.down = False
    await site.get()
    assert "hit" in status_of(await site.get())
