"""Rules of the page that need no browser, run by Node.js: state, recommendation, tables of routes, gaps, pages of reasons."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

from benchmarks.setups.clients.node import NODE
from quaestor.dashboard.assets import FOLDER
from quaestor.observability import vocabularies

WINDOW: dict[str, Any] = {
    "requests": {"hit": 90, "miss": 10},
    "verifications": {},
    "failures": {},
    "evicted_ms": {"p99": 50},
}
WELL: dict[str, Any] = {
    "processes": [{"serving": True}],
    "windows": {"60": WINDOW, "300": WINDOW, "3600": WINDOW},
    "highest": {"grid_lag_seconds": {"all": 0.1}, "purges_oldest_seconds": {}, "sketch_false_positives": {}},
    "evicted_ms": {"p50": 10, "p99": 50}, "cdn": False, "quarantined": [], "warnings": [],
}  # fmt: skip


def called(module: str, function: str, *arguments: Any) -> Any:
    """Return the result of a function of one of the page's modules."""
    program = (
        f"import {{ {function} }} from {json.dumps((FOLDER / module).as_uri())};"
        f"console.log(JSON.stringify({function}(...{json.dumps(arguments)})));"
    )
    return printed(program)


def printed(program: str) -> Any:
    """Return the JSON that a program prints."""
    done = subprocess.run(
        [NODE, "--no-warnings", "--input-type=module", "-e", program], text=True, stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("change", "level", "said"),
    [
        ({}, None, ""),
        ({"processes": []}, "bad", "No process of the application reports"),
        ({"processes": [{"serving": True}, {"serving": False}]}, "bad", "1 of 2 processes serve nothing"),
        ({"highest": WELL["highest"] | {"grid_lag_seconds": {"all": 3}}}, "bad", "lags by 3 s; the threshold is 2 s"),
        ({"highest": WELL["highest"] | {"purges_oldest_seconds": {"v": 40}}}, None, ""),
        ({"highest": WELL["highest"] | {"purges_oldest_seconds": {"v": 40}}, "cdn": True}, "bad", "waits for 40 s"),
        ({"evicted_ms": {"p50": 10, "p99": 2_500}}, None, ""),
        (
            {"windows": WELL["windows"] | {"300": WINDOW | {"evicted_ms": {"p50": 10, "p99": 2_500}}}},
            "warn",
            "took 2.5 s to evict in the last 5 minutes; the threshold is 1 s",
        ),
        ({"highest": WELL["highest"] | {"sketch_false_positives": {"union,measured": 0.3}}}, "warn", "names 30 %"),
        ({"quarantined": ["GET a"]}, "warn", "Not cached: GET a"),
        (
            {"windows": WELL["windows"] | {"300": WELL["windows"]["300"] | {"requests": {"hit": 40, "miss": 60}}}},
            "warn",
            "The hit rate fell to 40 % in the last 5 minutes; in the last hour it was 90 %",
        ),
        (
            {"windows": WELL["windows"] | {"300": WELL["windows"]["300"] | {"requests": {"hit": 4, "miss": 6}}}},
            None,
            "",
        ),
        (
            {"windows": WELL["windows"] | {"300": WELL["windows"]["300"] | {"failures": {"store": 2}}}},
            "warn",
            "store 2",
        ),
        (
            {"windows": WELL["windows"] | {"3600": WELL["windows"]["3600"] | {"verifications": {"diverged": 1}}}},
            "bad",
            "1 stored answers differed",
        ),
    ],
)
def test_values_beyond_their_threshold_stand_before_any_numbers(
    change: dict[str, Any], level: str | None, said: str
) -> None:
    findings = called("status.js", "findings", WELL | change)
    assert [finding["level"] for finding in findings] == ([level] if level else [])
    if level:
        assert said in findings[0]["text"]


def point(name: str, hits: tuple[float, float | None], stale: tuple[float, float | None]) -> dict[str, Any]:
    return {"name": name, "figures": {"browser_fresh": hits, "stale": stale}}


@pytest.mark.parametrize(
    ("points", "taken", "said"),
    [
        (
            [point("now", (0.3, 0.01), (0.002, 0)), point("more", (0.5, 0.01), (0.008, 0.001)), point("x", (1, 0), (0.05, 0))],
            "more", "Take more: 50 % fresh hits in browsers, 0.8 % stale. Now it is 30 %",
        ),
        ([point("now", (0.3, 0.02), (0.002, 0)), point("more", (0.31, 0.02), (0.002, 0))], None, "the differences are noise"),
        ([point("now", (0.3, 0.02), (0.002, 0)), point("less", (0.1, 0.02), (0.001, 0))], None, "nothing that was tried has"),
        ([point("now", (0.6, 0.02), (0.05, 0)), point("less", (0.1, 0.02), (0.001, 0))], "less", "Take less"),
        ([point("now", (0.6, 0.02), (0.05, 0)), point("x", (0.7, 0.02), (0.0095, 0.001))], None, "keeps at most 1 % stale"),
        ([point("now", (0.3, None), (0.002, None)), point("more", (0.5, None), (0.003, None))], "more", "Take more"),
    ],
    ids=["the best within the goal", "within the noise", "none is better", "now breaks the goal", "its interval breaks it",
         "no interval"],
)  # fmt: skip
def test_one_recommendation_is_made_for_a_goal(points: list[Any], taken: str | None, said: str) -> None:
    """At most 1 % stale, the most hits; or that nothing is to be changed, and why."""
    recommended = called("recommend.js", "recommendation", points, 0.01)
    assert (recommended["point"] and recommended["point"]["name"], said in recommended["why"]) == (taken, True), (
        recommended["why"]
    )


def test_routes_are_searched_sorted_and_put_together_by_collection() -> None:
    routes = [
        {"route": "GET items", "hits": 90, "misses": 10, "passed": 0, "why": {"absent": 10}, "collections": ["shop.items"]},
        {"route": "GET both", "hits": 0, "misses": 5, "passed": 5, "why": {"clock": 5},
         "collections": ["shop.items", "shop.prices"]},
    ]  # fmt: skip

    def found(by: str, search: str, sort: str) -> list[tuple[str, float]]:
        several = called("routes.js", "lines", routes, {"by": by, "search": search, "sort": sort})
        return [(curve["name"], round(curve["rate"], 3)) for curve in several]

    assert found("route", "", "-requests") == [("GET items", 0.9), ("GET both", 0)]
    assert found("route", "", "rate") == [("GET both", 0), ("GET items", 0.9)]
    assert found("route", "PRICES", "name") == [("GET both", 0)]
    assert found("route", "clock", "name") == [("GET both", 0)]
    assert found("collection", "", "name") == [("shop.items", 0.818), ("shop.prices", 0)]


def test_a_time_without_data_is_a_gap_in_each_line() -> None:
    assert called("charts.js", "withGaps", [[1, 2, 30, 31], [5, 6, 7, 8]]) == [[1, 2, 3, 30, 31], [5, 6, None, 7, 8]]
    assert called("charts.js", "withGaps", [[], []]) == [[], []]


def test_applied_parameters_are_marked_at_their_time_where_a_chart_shows_it() -> None:
    """The settings' own parameters, number 0, were never applied."""
    history = [
        {"number": 2, "at_ms": 9_500, "canary": {"share": 10}},
        {"number": 1, "at_ms": 4_000, "canary": None},
        {"number": 0, "at_ms": 0, "canary": None},
    ]
    marks = called("marks.js", "marksOf", history)
    assert marks == [{"at": 9.5, "text": "canary 2"}, {"at": 4, "text": "applied 1"}]
    for low, high, texts in ((4, 9.5, ["canary 2", "applied 1"]), (4.1, 20, ["canary 2"]), (0, 9.4, ["applied 1"])):
        assert [mark["text"] for mark in called("marks.js", "between", marks, low, high)] == texts


@pytest.mark.parametrize("silent", ["fetch", "body"])
@pytest.mark.parametrize(("change", "patience_ms"), [(False, 10_000), (True, 200_000)])
def test_a_server_that_never_answers_is_given_up(silent: str, change: bool, patience_ms: int) -> None:
    """Looks after 10 s; changes after 200 s, because a canary is predicted for up to 180 s. Such a call is a Problem of
    status 0, by which the page says that the server is gone."""
    program = f"""
        globalThis.sessionStorage = {{ getItem: () => "token" }};
        const patience = [];
        AbortSignal.timeout = (ms) => {{
            const aborting = new AbortController();
            patience.push(ms);
            setTimeout(() => aborting.abort(new DOMException("too late", "TimeoutError")), 10);
            return aborting.signal;
        }};
        globalThis.fetch = (path, {{ signal }}) => {{
            const never = () => new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
            return {json.dumps(silent)} === "fetch" ? never() : Promise.resolve({{ ok: true, json: never }});
        }};
        const {{ call, Problem }} = await import({json.dumps((FOLDER / "server.js").as_uri())});
        try {{
            await call("data", {"{}" if change else "undefined"});
        }} catch (error) {{
            console.log(JSON.stringify([error instanceof Problem, error.status, patience]));
        }}
    """
    assert printed(program) == [True, 0, [patience_ms]]


def test_each_reason_has_an_explanation_where_its_link_leads() -> None:
    """Codes that can be counted, and no others."""
    anchors = re.findall(r'<dt id="([a-z-]+)">', (FOLDER / "reasons.html").read_text())
    assert sorted(anchors) == sorted([*vocabularies.REASONS, *(f"miss-{reason}" for reason in vocabularies.MISSES)])
    for reason, anchor in (("absent", "miss-absent"), ("clock", "clock")):
        assert called("routes.js", "explained", reason) == f"reasons.html#{anchor}"


def test_live_clients_are_added_up_and_their_ends_stand_by_frequency() -> None:
    """Slow readers are those of WebSockets and of streams; a reason without events has no line."""
    now = {
        "sums": {
            "live_connections": {"all": 3}, "live_subscriptions": {"all": 40}, "live_slow_clients": {"all": 2},
            "followers": {"all": 7}, "followers_ended": {"slow": 1, "left": 5, "expired": 0},
            "live_rejected": {"origin": 4, "address": 0}, "followers_refused": {"process": 1},
        },
        "highest": {"subscriptions_lag_seconds": {"all": 1.5}},
        "windows": {"300": {"followers_ended": {"left": 2}}},
    }  # fmt: skip
    tiles = dict(called("live.js", "tiles", now))
    assert (tiles["WebSockets"], tiles["Subscriptions"], tiles["Streams and long polls"]) == ("3", "40", "7")
    assert (tiles["Lag of the slowest result"], tiles["Slow readers: closed"]) == ("1.5 s", "3")
    assert called("live.js", "counted", "followers_ended", now) == [["left", "2", "5"], ["slow", "0", "1"]]
    assert called("live.js", "counted", "live_ended", now) == []
    assert called("live.js", "refused", now) == [["WebSocket", "origin", "4"], ["stream or poll", "process", "1"]]


def test_long_polls_answers_and_refusals_of_live_queries_over_http_are_shown() -> None:
    """Long polls that wait are a tile, answers a table by content, refused requests a line among the refused clients."""
    now = {
        "sums": {"live_polls": {"all": 10_000}, "live_http": {"changes": 7, "refused": 3, "snapshot": 9, "gone": 0}},
        "highest": {},
        "windows": {"300": {"live_http": {"changes": 2}}},
    }
    assert dict(called("live.js", "tiles", now))["Long polls of live queries"] == "10,000"
    answers = [["snapshot", "0", "9"], ["changes", "2", "7"], ["refused", "0", "3"]]
    assert called("live.js", "counted", "live_http", now) == answers
    assert called("live.js", "refused", now) == [["live query over HTTP", "limit, rights or error", "3"]]
    assert called("live.js", "refused", now | {"sums": {"live_http": {"changes": 7}}}) == []
