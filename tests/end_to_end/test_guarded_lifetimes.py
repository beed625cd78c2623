"""Lifetimes of entries that registrations guard: in the cache, and in copies outside."""

from __future__ import annotations

import httpx
import pytest

from quaestor import cached
from tests.end_to_end.site import Site, status_of
from tests.hand_driven import TaggingCdn

pytestmark = pytest.mark.anyio

ESTIMATE_MS = 5_000


def site_of_short_estimates(**settings: object) -> Site:
    """A site whose estimator takes every query for one that is written all the time."""
    site = Site(**settings)
    site.engine.estimator.ttl_ms = ESTIMATE_MS
    return site


def left_s(answer: httpx.Response, name: str) -> int:
    """How long a copy of this answer may still be used."""
    seconds = answer.headers[name].partition("max-age=")[2].partition(",")[0]
    return max(0, int(seconds) - int(answer.headers["age"]))


async def test_a_guarded_entry_outlives_what_is_estimated() -> None:
    """No lifetime ends for nothing: while no write has come the entry is used, until the end of its registrations' lease."""
    site = site_of_short_estimates()
    await site.get()
    for _ in range(11):
        site.engine.clock.now_ms += ESTIMATE_MS
        assert "hit" in status_of(await site.get())
    assert site.runs == 1
    site.engine.clock.now_ms += ESTIMATE_MS
    await site.get()
    assert site.runs == 2, "60 s are over, for which its registrations were leased"


async def test_a_lifetime_that_was_given_stays_a_bound() -> None:
    """`@cached(ttl=...)` bounds what is guarded too."""
    site = site_of_short_estimates(routes={"/items": cached(ttl=7)})
    await site.get()
    site.engine.clock.now_ms += 6_999
    await site.get()
    assert site.runs == 1
    site.engine.clock.now_ms += 1
    await site.get()
    assert site.runs == 2


@pytest.mark.parametrize("settings", [{"cdn": [TaggingCdn()]}, {"client_ttl": "estimated"}])
async def test_copies_outside_live_as_long_as_estimated_and_the_sketch_lists_all(
    settings: dict[str, object],
) -> None:
    """An entry's lifetime is renewed when the last one is over, so the CDN sends neither fewer nor more requests than
    before.

    No copy may live at a moment at which the sketch would not list it.
    """
    site = site_of_short_estimates(**settings)
    name = "cdn-cache-control" if "cdn" in settings else "cache-control"
    for at_s in range(59):
        answer = await site.get()
        assert answer.json()["version"] == 1
        left = left_s(answer, name)
        assert left == 5 - at_s % 5 if at_s < 55 else left <= 60 - at_s
        assert site.engine.clock.now_ms + left * 1000 <= site.engine.sketch.reads["/items"]
        site.engine.clock.now_ms += 1_000
    assert site.runs == 1


async def test_a_renewed_lifetime_ends_with_the_entry() -> None:
    """Copies never outlive the entry they were made of."""
    site = site_of_short_estimates(cdn=[TaggingCdn()], ttl_max_ms=7_000)
    await site.get()
    site.engine.clock.now_ms += ESTIMATE_MS
    assert left_s(await site.get(), "cdn-cache-control") == 2
    site.engine.clock.now_ms += 1_999
    assert left_s(await site.get(), "cdn-cache-control") == 1
    assert site.runs == 1


async def test_without_the_sketch_nobody_is_given_another_lifetime() -> None:
    """The entry itself is as good as before."""
    site = site_of_short_estimates(client_ttl="estimated")
    await site.get()
    site.engine.clock.now_ms += ESTIMATE_MS
    site.engine.sketch.down = True
    answer = await site.get()
    assert (answer.headers["cache-control"], site.runs) == ("no-store", 1)
    site.engine.sketch.down = False
    assert left_s(await site.get(), "cache-control") == 5


async def test_an_entry_that_died_while_a_lifetime_was_given_is_not_sent() -> None:
    """Telling the sketch takes time, in which a write may come."""
    site = site_of_short_estimates(client_ttl="estimated")
    await site.get()
    site.engine.clock.now_ms += ESTIMATE_MS
    report_read = site.engine.sketch.report_read

    async def slow(resource: str, *, expires_at_ms: int, now_ms: int) -> None:
        await report_read(resource, expires_at_ms=expires_at_ms, now_ms=now_ms)
        site.version = 2
        site.engine.registry.dead.add("test:1")

    site.engine.sketch.report_read = slow  # type: ignore[method-assign]
    assert (await site.get()).json()["version"] == 2
