"""Several processes of an app and one dashboard: each process shows all of them, and so does the command `quaestor
dashboard`."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard
from redis.asyncio import Redis

from quaestor import AdminToken
from quaestor.cli import main
from quaestor.dashboard import live, standalone
from quaestor.dashboard.reports import SharedReports
from quaestor.proxy.options import ProxyOptions
from quaestor.proxy.server import application, configuration
from quaestor.runtime import services
from quaestor.settings import Settings
from tests.dashboard.running import HERE, OPERATOR, TOKEN, lifespan, watched
from tests.end_to_end.scripted_origin import PLAIN, answer, scripted_origin, serving
from tests.support import becomes, eventually, killed_after

pytestmark = pytest.mark.anyio


async def page_data(client: httpx.AsyncClient) -> dict[str, Any]:
    answer = await client.get(f"{HERE}/data", headers=OPERATOR)
    assert answer.status_code == 200, answer.text
    parameters_shown: dict[str, Any] = answer.json()
    return parameters_shown


async def test_every_process_shows_all_of_them(shared_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a server and on a cluster; two workers, and the command's app, which is none of them and applies for both."""
    monkeypatch.setattr(live, "EVERY_S", 0.05)
    monkeypatch.setattr(services, "_TUNED_EVERY_S", 0.05)
    settings = {"redis_url": shared_url, "deployment": prefix}
    alone = standalone.application(Settings(**settings), token=AdminToken(TOKEN), traces="", read_only=False)  # type: ignore[arg-type]
    async with watched(settings=settings) as first_process, watched(settings=settings) as other, lifespan(alone):
        transport = httpx.ASGITransport(alone)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://dashboard.test") as third:
            for i in range(6):
                await (first_process if i % 2 else other).get(f"/{i}")

            async def all_are_there() -> bool:
                seen = [await page_data(each) for each in (first_process, other, third)]
                return [(len(each["processes"]), each["sums"]["requests"].get("miss")) for each in seen] == [(2, 6)] * 3

            await eventually(all_are_there)
            moved = await third.get("/")
            assert moved.headers["location"] == "quaestor/dashboard/"
            wanted = {"by": "ann", "base": 0, "parameters": {"default": {"quantile": 0.25}}}
            assert (await third.post(f"{HERE}/apply", headers=OPERATOR, json=wanted)).status_code == 200

            async def all_have_it() -> bool:
                seen = [each._transport.app.engine.parts.estimator.parameters for each in (first_process, other)]  # type: ignore[attr-defined]
                return [parameters.default.quantile for parameters in seen] == [0.25, 0.25]

            await eventually(all_have_it)
            assert (await first_process.get(f"{HERE}/parameters", headers=OPERATOR)).json()["history"][0]["by"] == "ann"


async def test_bytes_that_are_no_report_are_left_out(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version's, nonsense, and a bomb: the others are shown."""
    monkeypatch.setattr(live, "EVERY_S", 0.05)
    async with (
        Redis.from_url(redis_url) as redis,
        watched(settings={"redis_url": redis_url, "deployment": prefix}) as client,
    ):
        shared = SharedReports(redis, scope=prefix)
        key = f"quaestor:{{{prefix}:dashboard}}:reports"
        await page_data(client)
        for name, packed in (
            ("nonsense", b"\xff" * 50),
            ("other version", zstandard.compress(b'{"version": 99, "at_ms": 1}')),
            ("bomb", zstandard.compress(b" " * 50_000_000)),
        ):
            await redis.hset(key, name, packed)  # type: ignore[misc]
        await shared.tell({"version": 1, "process": "hollow", "at_ms": time.time_ns() // 1_000_000})
        points = len((await page_data(client))["points"])

        async def goes_on() -> bool:
            return len((await page_data(client))["points"]) > points + 3

        await eventually(goes_on)
        assert [name for name in await redis.hkeys(key) if name in (b"nonsense", b"bomb", b"other version")] == []  # type: ignore[misc]


async def test_without_a_redis_nothing_can_be_applied_by_the_command() -> None:
    """There is a trace to try parameters on, and nobody who would take them up."""
    app = standalone.application(Settings(), token=AdminToken(TOKEN), traces="", read_only=False)
    transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
    async with lifespan(app), httpx.AsyncClient(transport=transport, base_url="http://dashboard.test") as client:
        assert (await client.get(f"{HERE}/parameters", headers=OPERATOR)).json()["may_apply"] is False
        assert (await page_data(client))["processes"] == []
        assert (await client.get("/elsewhere")).status_code == 404


def test_a_bad_address_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for listen in ("8090", "127.0.0.1:x", "127.0.0.1:99999"):
        with pytest.raises(SystemExit) as ended:
            main.main(["dashboard", "--listen", listen])
        assert ended.value.code == 2
        assert "--listen is HOST:PORT" in capsys.readouterr().err


def test_the_command_says_where_it_is_and_which_token_it_takes(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = subprocess.Popen(
        [sys.executable, "-m", "quaestor.cli", "dashboard", "--listen", f"127.0.0.1:{port}"],
        stdout=subprocess.PIPE, text=True, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    try:
        assert running.stdout is not None
        with killed_after(120, running):
            token = running.stdout.readline().removeprefix("token: ").strip()
            url = running.stdout.readline().strip()
        assert url == f"http://127.0.0.1:{port}{HERE}/"
        with httpx.Client(trust_env=False, timeout=20) as client:

            def answers() -> bool:
                try:
                    return client.get(url).status_code == 200
                except httpx.TransportError:
                    return False

            becomes(answers)
            assert client.get(f"{url}data").status_code == 401
            assert client.get(f"{url}data", headers={"authorization": f"Bearer {token}"}).status_code == 200
    finally:
        running.terminate()
        running.communicate(timeout=20)


async def test_the_proxy_has_a_dashboard_if_its_options_ask_for_it() -> None:
    """The dashboard is open to the admin token; without that option its path belongs to the origin."""
    async with scripted_origin(lambda _: answer("404 Not Found")) as origin:
        for dashboard in (True, False):
            app = application(ProxyOptions(origin=origin.url), PLAIN, token=AdminToken(TOKEN), dashboard=dashboard)
            async with serving(configuration(app)) as url, httpx.AsyncClient(base_url=url, trust_env=False) as client:
                assert (await client.get(f"{HERE}/")).status_code == (200 if dashboard else 404)
                status = (await client.get(f"{HERE}/data", headers=OPERATOR)).status_code
                assert status == (200 if dashboard else 404)


def test_the_proxy_has_none_without_a_token(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["proxy", "--origin", "http://127.0.0.1:1", "--dashboard"])
    assert ended.value.code == 2
    assert "--admin-token-file" in capsys.readouterr().err
