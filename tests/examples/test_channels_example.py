"""Alerts near officers: the tutorial of channels as it is printed, and a broker that was away."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx
import pytest

from quaestor.testing import servers
from quaestor.testing.servers import Server
from tests.docs.blocks import ROOT
from tests.docs.transcripts import run, transcript
from tests.examples.started import process
from tests.support import PATIENCE_S, becomes

DOCUMENT = "docs/channels/tutorial.md"
BROKER = "examples.alerts_app:app"


def broker(port: int) -> list[str]:
    return [
        sys.executable,
        "-m",
        "uvicorn",
        BROKER,
        "--host",
        servers.HOST,
        "--port",
        str(port),
        "--log-level",
        "warning",
    ]


def feeds_take_posts(server: Server) -> bool:
    return all(
        httpx.post(f"{server.url}/feeds/{feed}", content=b"", timeout=5).status_code == 200
        for feed in ("TweetFeed", "PositionFeed")
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_officers_hear_of_tweets_near_them_as_the_tutorial_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each alert is there once, also those of the time when the broker was away."""
    app_port, port = servers.free_port(), servers.free_port()
    monkeypatch.setenv("QUAESTOR_CONTINUOUS_FOLDER", str(tmp_path / "folder"))
    monkeypatch.setenv("QUAESTOR_WEBHOOK_NETWORKS", "127.0.0.0/8")
    monkeypatch.setenv("BROKER_KEY", f"whsec_{'A' * 44}")
    monkeypatch.setenv("ALERTS", str(tmp_path / "alerts.db"))
    statements = (ROOT / "examples" / "alerts.sql").read_text()
    assert statements.count("127.0.0.1:8000") == 1
    (tmp_path / "alerts.sql").write_text(statements.replace("127.0.0.1:8000", f"127.0.0.1:{app_port}"))
    places = {
        "examples/alerts.sql": str(tmp_path / "alerts.sql"),
        "localhost:8000": f"127.0.0.1:{app_port}",
        "localhost:8070": f"127.0.0.1:{port}",
    }
    steps = run(DOCUMENT, tmp_path, places)
    assert "quaestor channels execute" in next(steps)
    channels = [sys.executable, "-m", "quaestor.cli", "channels", "run", "--listen", f"127.0.0.1:{port}"]
    with process(tmp_path, "channels", channels, port=port, ready=feeds_take_posts) as server:
        with process(tmp_path, "broker", broker(app_port), port=app_port):
            assert len(list(steps)) + 1 == len(transcript(DOCUMENT)) >= 14
            before = httpx.get(f"http://127.0.0.1:{app_port}/alerts").json()
        near = {"tid": 7, "text": "while away", "hateful": True, "location": [-117.84, 33.64]}
        assert httpx.post(f"{server.url}/feeds/TweetFeed", json=near, timeout=PATIENCE_S).json()["accepted"] == 1
        (tmp_path / "again").mkdir()
        with process(tmp_path / "again", "broker", broker(app_port), port=app_port) as again:
            expected = sorted([*before, "officer 20: while away", "officer 30: while away"])
            becomes(lambda: sorted(httpx.get(f"{again.url}/alerts").json()) == expected, within_s=PATIENCE_S)


@pytest.mark.anyio
async def test_a_message_without_the_signature_of_the_key_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker of the tutorial keeps nothing of it."""
    monkeypatch.setenv("BROKER_KEY", f"whsec_{'A' * 44}")
    monkeypatch.setenv("ALERTS", str(tmp_path / "alerts.db"))
    from examples.alerts_app import app

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://broker.test") as client:
        assert (await client.post("/results", json={"results": []})).status_code == 401
        assert (await client.get("/alerts")).json() == []
