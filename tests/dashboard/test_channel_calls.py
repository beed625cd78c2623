"""Channels on the dashboard: overview of a folder, pause and resume; by operators alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from quaestor.channels.brokers.acknowledgements import Acknowledgements
from quaestor.channels.overview import ChannelsOverview
from quaestor.channels.runs.history import KEPT, RunReport, keep, kept_reports
from quaestor.channels.runs.results import Results
from tests.dashboard.channels_folder import HOSTILE, Folder, filled, settings
from tests.dashboard.running import HERE, OPERATOR, VIEWER, watched
from tests.dashboard.test_page_rules import called


@pytest.mark.anyio
async def test_every_viewer_sees_channels_and_operators_change_them(tmp_path: Path) -> None:
    """Runs, rows, dead letters and the statement are shown; a viewer's change is refused and changes nothing."""
    await _in_thread(tmp_path)
    async with watched(settings=settings(tmp_path)) as client:

        async def channel(headers: dict[str, str]) -> dict[str, Any]:
            (shown,) = (await client.get(f"{HERE}/channels", headers=headers)).json()["channels"]
            return dict(shown)

        async def change(headers: dict[str, str], **body: str) -> httpx.Response:
            return await client.post(f"{HERE}/channels/change", headers=headers, json=body)

        assert (await client.get(f"{HERE}/channels", headers=VIEWER)).json()["may_change"] is False
        shown = await channel(VIEWER)
        assert (shown["name"], shown["state"], shown["results"], shown["dead_letters"]) == ("Local", "ready", 1, 1)
        detail = (await client.get(f"{HERE}/channels/channel", params={"name": "Local"}, headers=VIEWER)).json()
        assert [letter["error"] for letter in detail["dead_letters"]] == [HOSTILE]
        assert [run["rows"] for run in detail["runs"]] == [1, 0]
        assert HOSTILE in detail["text"]
        assert (await change(VIEWER, do="pause", name="Local")).status_code == 403
        assert (await channel(OPERATOR))["state"] == "ready"
        assert (await change(OPERATOR, do="pause", name="Local")).json() == {"done": "paused channel Local"}
        paused = await channel(OPERATOR)
        assert (paused["state"], paused["next"], paused["late_s"]) == ("paused", None, 0)
        assert (await change(OPERATOR, do="resume", name="Local")).json() == {"done": "resumed channel Local"}
        for body in ({"do": "drop", "name": "Local"}, {"do": "pause"}, {"do": "pause", "name": "Lokal"}):
            assert (await client.post(f"{HERE}/channels/change", headers=OPERATOR, json=body)).status_code == 400, body
        for query in ("", "?name=a&name=b", "?name=../Local"):
            answer = await client.get(f"{HERE}/channels/channel{query}", headers=OPERATOR)
            assert answer.status_code == 400, query


@pytest.mark.anyio
async def test_operators_send_dead_letters_again_or_drop_them(tmp_path: Path) -> None:
    """A message that fails again stays; a dropped one is gone; a viewer does neither."""
    await _in_thread(tmp_path)
    async with watched(settings={**settings(tmp_path), "delivery_timeout_ms": 20}) as client:

        async def change(headers: dict[str, str], do: str) -> httpx.Response:
            body = {"do": do, "name": "local"}
            return await client.post(f"{HERE}/channels/change", headers=headers, json=body)

        async def letters() -> int:
            (shown,) = (await client.get(f"{HERE}/channels", headers=VIEWER)).json()["channels"]
            return int(shown["dead_letters"])

        for do in ("replay", "discard"):
            assert (await change(VIEWER, do)).status_code == 403
        assert (await change(OPERATOR, "replay")).json() == {"done": "0 messages delivered, 1 failed"}
        assert await letters() == 1
        assert (await change(OPERATOR, "discard")).json() == {"done": "1 messages dropped"}
        assert (await change(OPERATOR, "replay")).json() == {"done": "0 messages delivered, 0 failed"}
        assert await letters() == 0


@pytest.mark.anyio
async def test_without_a_folder_there_are_no_channels() -> None:
    async with watched() as client:
        shown = (await client.get(f"{HERE}/channels", headers=OPERATOR)).json()
        assert shown == {"channels": None, "brokers": [], "feeds": [], "may_change": False}
        body = {"do": "pause", "name": "Local"}
        assert (await client.post(f"{HERE}/channels/change", headers=OPERATOR, json=body)).status_code == 404


def test_a_run_is_shown_against_its_period_with_the_time_of_each_stage(tmp_path: Path) -> None:
    """A run of 12 s in a period of 10 s is an overrun; runs of the service hold all stages."""
    folder = filled(tmp_path)
    results = Results(folder.channels.parts.catalogue, "Local")
    keep(results, RunReport(run=folder.now_ms * 1_000, outcome="published", took_s=12.0, period_s=10.0))
    overview = ChannelsOverview(folder.channels)
    (channel,) = overview.look(now=folder.now_ms * 1_000 + 15_000_000)["channels"]
    assert (channel["overruns"], channel["runs"], channel["took_s"], channel["late_s"]) == (1, 3, 12.0, 5.0)
    runs = overview.channel("Local")["runs"]
    assert [run["is_overrun"] for run in runs] == [True, False, False]
    assert set(runs[1]["stages_s"]) == {"load", "subscriptions", "execute", "encode", "publish"}


def test_a_failed_run_is_kept_with_its_reason(tmp_path: Path) -> None:
    """A number that the query cannot read fails the run."""
    folder = Folder(tmp_path)
    folder.channels.interpreter.run(
        """
        CREATE ACTIVE DATASET Tweets (tid bigint, text text) PRIMARY KEY tid;
        CREATE BROKER b AT 'https://93.184.216.34/';
        CREATE CONTINUOUS CHANNEL Broken () PERIOD 10 SECONDS FROM BEGINNING
          { SELECT CAST(t.text AS bigint) AS n FROM Tweets t WHERE is_new(t) };
        SUBSCRIBE TO Broken () ON b;
        """
    )
    folder.run()
    folder.fed(b'{"tid": 1, "text": "seven"}')
    folder.run()
    (channel,) = ChannelsOverview(folder.channels).look(now=folder.now_ms * 1_000)["channels"]
    assert "seven" in channel["error"]
    assert [run["outcome"] for run in ChannelsOverview(folder.channels).channel("Broken")["runs"]] == [
        "failed",
        "published",
    ]


def test_the_newest_reports_are_kept(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    results = Results(folder.channels.parts.catalogue, "Local")
    for number in range(KEPT + 5):
        keep(results, RunReport(run=number, outcome="published", took_s=0.1, period_s=1.0))
    assert [report.run for report in kept_reports(results.table.snapshot())] == list(range(5, KEPT + 5))


def test_a_broker_lags_until_it_acknowledges_the_run_with_its_results(tmp_path: Path) -> None:
    """A run without results for the broker is no lag. The lease of a silent broker is over."""
    folder = filled(tmp_path)
    overview = ChannelsOverview(folder.channels)

    def broker(after_s: int) -> dict[str, Any]:
        (shown,) = overview.look(now=folder.now_ms * 1_000 + after_s * 1_000_000)["brokers"]
        return shown

    run = Results(folder.channels.parts.catalogue, "Local").progress().run
    assert run is not None
    assert (broker(7)["lag_s"], broker(7)["state"], broker(7)["subscriptions"]) == (7.0, "lease over", 2)
    Acknowledgements(folder.channels.parts.catalogue.root).advance("station", "Local", run)
    folder.run()
    assert broker(7)["lag_s"] == 0
    assert broker(7)["acknowledged"] is not None
    folder.fed(b'{"tid": 2, "area": "LA", "text": "far"}')
    folder.run()
    assert broker(3)["lag_s"] == 3


def test_a_feed_shows_its_batches_rate_and_rejected_records(tmp_path: Path) -> None:
    """The rate is that of the last minute."""
    folder = filled(tmp_path)
    overview = ChannelsOverview(folder.channels)
    (feed,) = overview.look(now=folder.now_ms * 1_000)["feeds"]
    assert (feed["state"], feed["batches"], feed["rejected"], feed["rate"]) == ("started", 1, 1, 1 / 60)
    (feed,) = overview.look(now=folder.now_ms * 1_000 + 120_000_000)["feeds"]
    assert (feed["rate"], feed["newest_s"]) == (0, 130)
    folder.fed(b"neither")
    assert overview.look(now=folder.now_ms * 1_000)["feeds"][0]["rejected"] == 2


def test_lines_of_runs_show_overruns_and_failures() -> None:
    """Failed runs count in no stage."""
    stages = {"load": 0.75, "execute": 0.25}
    runs = [
        {"run": "r3", "outcome": "failed", "took_s": 1, "period_s": 10, "is_overrun": False, "rows": 0, "stages_s": {},
         "error": "seven"},
        {"run": "r2", "outcome": "published", "took_s": 12, "period_s": 10, "is_overrun": True, "rows": 5,
         "stages_s": stages, "error": ""},
    ]  # fmt: skip
    lines = called("channels.js", "runLines", runs)
    assert [line[4] for line in lines] == [{"text": "10 %", "level": ""}, {"text": "120 %", "level": "bad"}]
    assert lines[0][1]["level"] == "bad"
    assert [round(line["part"], 2) for line in called("channels.js", "stageLines", runs)] == [0.75, 0, 0.25, 0, 0]


async def _in_thread(path: Path) -> None:
    """Fill the folder outside the loop of the test."""
    import anyio.to_thread

    await anyio.to_thread.run_sync(filled, path)
