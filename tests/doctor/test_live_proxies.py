"""`quaestor doctor --url`: a real nginx in front of a live route or of live queries, configured rightly and wrongly."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from quaestor.testing.servers import running
from tests.doctor.called import doctor, ran
from tests.doctor.nginx import BUFFERS, CUTS, KEEPS, UPGRADES, needs_nginx, nginx_server
from tests.live.live_site import LiveSite
from tests.live.socket_site import Site, live_site

pytestmark = [pytest.mark.anyio, needs_nginx]


async def diagnosed(
    site: LiveSite, directives: str, *, path: str = "/items", heartbeat_ms: int = 300
) -> dict[str, Any]:
    async with site.served(http="h11") as origin:  # whose answers to nginx are not chunked: of chunks nginx passes each
        await origin.get("/items")
        start = partial(nginx_server, app_port=origin.base_url.port, directives=directives)
        with running(start, "nginx") as proxy:
            report = await asyncio.to_thread(
                doctor, "--url", proxy.url + path, QUAESTOR_LIVE_HEARTBEAT_MS=str(heartbeat_ms)
            )
    assert len(report.findings) == 1
    return report.one("live")


async def test_a_proxy_that_holds_nothing_back_is_right() -> None:
    finding = await diagnosed(LiveSite(live_heartbeat_ms=300), "")
    assert (finding["level"], finding["remedy"]) == ("ok", [])
    assert "events pass at once" in finding["sentence"]


async def test_a_proxy_that_buffers_is_to_mend_and_the_remedy_mends_it() -> None:
    site = LiveSite(live_heartbeat_ms=300)
    finding = await diagnosed(site, BUFFERS)
    assert (finding["level"], "holds" in finding["sentence"]) == ("mend", True)
    remedy = finding["remedy"][0]
    assert remedy.startswith("proxy_buffering off;")
    assert (await diagnosed(site, f"{BUFFERS} {remedy.partition('#')[0]}"))["level"] == "ok"


async def test_an_idle_time_out_before_the_sign_of_life_is_to_mend_and_each_remedy_mends_it() -> None:
    finding = await diagnosed(LiveSite(live_heartbeat_ms=3_000), CUTS, heartbeat_ms=3_000)
    assert (finding["level"], "cut an idle stream" in finding["sentence"]) == ("mend", True)
    longer, more = finding["remedy"]
    heartbeat_ms = int(more.partition("=")[2].partition(" ")[0])
    assert heartbeat_ms < 1_000
    assert (await diagnosed(LiveSite(live_heartbeat_ms=heartbeat_ms), CUTS, heartbeat_ms=heartbeat_ms))["level"] == "ok"
    mended = longer.partition("#")[0]
    assert (await diagnosed(LiveSite(live_heartbeat_ms=3_000), mended, heartbeat_ms=3_000))["level"] == "ok"


async def test_a_cache_that_answers_a_stream_with_a_copy_is_to_mend() -> None:
    finding = await diagnosed(LiveSite(), KEEPS)
    assert (finding["level"], "a cache answered with a copy" in finding["sentence"]) == ("mend", True)


async def test_a_route_that_is_not_live_and_a_server_that_is_away_are_distinguished() -> None:
    finding = await diagnosed(LiveSite(), "", path="/plain/items")
    assert (finding["level"], finding["remedy"]) == ("warn", ["@cached(live=True)  # on its handler"])
    assert "no answer" in doctor("--url", "http://127.0.0.1:9/items").one("live")["sentence"]


def test_an_address_of_another_kind_is_refused() -> None:
    done = ran("--url", "shop.example/items")
    assert done.returncode == 2
    assert "wss://shop.example/live" in done.stderr


@pytest.fixture(scope="module")
def site(mongo_url: str) -> Iterator[Site]:
    with live_site(mongo_url, "doctor_live") as running_site:
        yield running_site


@pytest.mark.parametrize(
    ("directives", "level", "said"),
    [
        (UPGRADES, "ok", "messages pass at once, also after 12 s of silence"),
        ("", "mend", "the upgrade was refused"),
        (f"{UPGRADES} {CUTS}", "mend", "an idle socket was cut after"),
    ],
    ids=["right", "without-upgrade", "idle"],
)
def test_sockets_need_the_upgrade_and_time(site: Site, directives: str, level: str, said: str) -> None:
    """The remedy is printed: the fields, or a longer time-out."""
    port = int(site.http.rpartition(":")[2])
    with running(partial(nginx_server, app_port=port, directives=directives), "nginx") as proxy:
        finding = doctor("--url", proxy.url.replace("http", "ws", 1) + "/live").one("live")
    assert (finding["level"], said in finding["sentence"]) == (level, True), finding
    assert any("Upgrade" in line or "proxy_read_timeout" in line for line in finding["remedy"]) == (level == "mend")
