"""Continuous queries on the dashboard: overview, texts, dead letters, pause, resume, replay; by operators alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from quaestor.dashboard.continuous import ContinuousView
from quaestor.observability.telemetry import Telemetry
from tests.dashboard.queries import HOSTILE, TEXT, delivered, filled, settings
from tests.dashboard.running import HERE, OPERATOR, VIEWER, watched
from tests.dashboard.test_page_rules import called

pytestmark = pytest.mark.anyio


async def test_every_viewer_sees_queries_and_operators_change_them(tmp_path: Path) -> None:
    """Rows, next run, dead letters and texts are shown; a viewer's change is refused and changes nothing."""
    filled(tmp_path)
    async with watched(settings=settings(tmp_path)) as client:

        async def queries(headers: dict[str, str]) -> dict[str, Any]:
            return dict((await client.get(f"{HERE}/continuous", headers=headers)).json())

        async def change(headers: dict[str, str], **body: str) -> httpx.Response:
            return await client.post(f"{HERE}/continuous/change", headers=headers, json=body)

        shown = await queries(VIEWER)
        (query,) = shown["queries"]
        assert shown["may_change"] is False
        assert (query["name"], query["state"], query["rows"], query["dead_letters"]) == ("large", "active", 1, 1)
        assert query["next"] > query["progress"]
        detail = (await client.get(f"{HERE}/continuous/query", params={"name": "large"}, headers=VIEWER)).json()
        assert [letter["error"] for letter in detail["dead_letters"]] == [HOSTILE]
        assert "tau" in detail["texts"]["incremental"]
        assert "total" in detail["texts"]["monotone"]

        for act in ("pause", "replay"):
            assert (await change(VIEWER, do=act, name="large")).status_code == 403
        (query,) = (await queries(OPERATOR))["queries"]
        assert (query["state"], query["dead_letters"], delivered(tmp_path)) == ("active", 1, "")

        assert (await change(OPERATOR, do="pause", name="large")).json()["done"]["state"] == "paused"
        (query,) = (await queries(OPERATOR))["queries"]
        assert (query["state"], query["next"], query["late_s"]) == ("paused", None, 0)
        assert (await change(OPERATOR, do="resume", name="large")).json()["done"]["state"] == "active"
        replayed = await change(OPERATOR, do="replay", name="large")
        assert replayed.json()["done"] == {"delivered": 1, "failed": 0, "asked": 0}
        assert "large/1/0" in delivered(tmp_path)
        assert (await queries(OPERATOR))["queries"][0]["dead_letters"] == 0


async def test_malformed_changes_are_refused_in_one_sentence(tmp_path: Path) -> None:
    """Unknown actions, fields and names."""
    filled(tmp_path)
    async with watched(settings=settings(tmp_path)) as client:
        for body, sentence in (
            ({"do": "drop", "name": "large"}, "one of pause, resume, replay"),
            ({"do": "pause"}, "the body is"),
            ({"do": "pause", "name": ["large"]}, "the body is"),
            ({"do": "pause", "name": "larger"}, "no query 'larger'"),
            ({"do": "replay", "name": "../large"}, "no query '../large'"),
        ):
            answer = await client.post(f"{HERE}/continuous/change", headers=OPERATOR, json=body)
            assert (answer.status_code, sentence in answer.json()["detail"]) == (400, True), body
        for query in ("", "?name=a&name=b", "?name=larger"):
            answer = await client.get(f"{HERE}/continuous/query{query}", headers=OPERATOR)
            assert answer.status_code == 400, query


async def test_without_a_folder_there_are_no_queries() -> None:
    """The page hides the section, and nothing of the extra is loaded."""
    async with watched() as client:
        shown = (await client.get(f"{HERE}/continuous", headers=OPERATOR)).json()
        assert shown == {"queries": None, "may_change": False}
        body = {"do": "pause", "name": "large"}
        assert (await client.post(f"{HERE}/continuous/change", headers=OPERATOR, json=body)).status_code == 404


async def test_a_query_that_is_due_shows_how_late_it_is(tmp_path: Path) -> None:
    """The clock is two days on, the period one day."""
    administration = filled(tmp_path)
    progress = administration.catalogue.open("results.large").snapshot().progress["large"]
    view = ContinuousView(lambda: administration, Telemetry(), lambda: progress // 1000 + 2 * 86_400_000)
    (query,) = (await view.look("/continuous", b"", may_change=True))["queries"]
    assert 86_400 <= query["late_s"] <= 2 * 86_400
    assert query["text"] == TEXT


def test_lines_of_queries_show_state_and_next_run() -> None:
    """A quarantine stands with its reason; a paused query has no next run."""
    queries = [
        {"name": "a", "state": "active", "reason": "", "every": "1m", "next": "2026-11-28T12:00:30Z", "late_s": 0,
         "rows": 3, "dead_letters": 0, "sinks": ["file:a"]},
        {"name": "b", "state": "quarantined", "reason": "no column", "every": "1m", "next": None, "late_s": 0,
         "rows": 0, "dead_letters": 2, "sinks": []},
        {"name": "c", "state": "active", "reason": "", "every": "1m", "next": "2026-11-28T12:00:00Z", "late_s": 5,
         "rows": 0, "dead_letters": 0, "sinks": []},
    ]  # fmt: skip
    lines = called("continuous.js", "queryLines", queries, 1_795_867_200_000)
    assert [line[3:5] for line in lines] == [["in 30 s", "–"], ["–", "–"], ["now", "5 s"]]
    assert lines[1][1] == {"text": "quarantined: no column", "level": "bad"}
    assert [line[6]["level"] for line in lines] == ["", "warn", ""]
