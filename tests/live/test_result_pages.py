"""Results of continuous queries over HTTP: immutable pages behind a pointer that the cache keeps, and streams of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Depends, Header, HTTPException
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from quaestor import ConfigurationError, ContinuousResults, Quaestor
from tests.live.results_site import ResultsSite, results_site


@pytest.fixture(scope="module")
def site(mongo_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResultsSite]:
    with results_site(mongo_url, tmp_path_factory.mktemp("tables")) as running:
        yield running


def until_newer(site: ResultsSite, than: int | None, name: str = "open_orders") -> dict[str, Any]:
    """Ask for the pointer until it names a newer run."""
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        pointer: dict[str, Any] = site.get(name).json()
        if pointer["newest"] not in (None, than):
            return pointer
        time.sleep(0.02)
    raise AssertionError(f"no run after {than}")


def ids(page: dict[str, Any]) -> list[int]:
    return [row["row"]["id"] for row in page["rows"]]


def test_a_page_never_changes_and_the_pointer_follows(site: ResultsSite) -> None:
    """The pointer is served from the cache, and a run with results invalidates it at once. A page is immutable, with its tag."""
    before = site.get("open_orders").json()["newest"]
    site.add(1, 2)
    pointer = until_newer(site, before)
    page = site.client.get(pointer["page"])
    assert page.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert ids(page.json()) == [1, 2]
    assert page.json()["rows"][0]["key"] == f"open_orders/{pointer['newest']}/0"
    same = site.client.get(pointer["page"], headers={"if-none-match": page.headers["etag"]})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", page.headers["etag"])
    end_s = time.monotonic() + 60
    while "; hit" not in site.get("open_orders").headers["cache-status"]:
        assert time.monotonic() < end_s
    site.add(3)
    later = until_newer(site, pointer["newest"])
    assert site.client.get(later["page"]).json()["previous"] == pointer["newest"]
    assert site.client.get(pointer["page"]).content == page.content


def test_a_client_resumes_after_a_run(site: ResultsSite) -> None:
    """`after` lists each later run once, in order, in pages of a limit; the last position has nothing behind it."""
    newest = site.get("open_orders").json()["newest"]
    for identity in (11, 12, 13):
        site.add(identity)
        newest = until_newer(site, newest)["newest"]
    seen, after = [], 0
    while runs := site.get(f"open_orders/runs?after={after}&limit=2").json():
        if not runs["runs"]:
            break
        assert len(runs["runs"]) <= 2
        seen += runs["runs"]
        after = runs["next"]
    assert after == newest
    assert [run["run"] for run in seen] == sorted({run["run"] for run in seen})
    rows = [identity for run in seen for identity in ids(site.client.get(run["page"]).json())]
    assert rows[-3:] == [11, 12, 13]
    assert len(rows) == len(set(rows)) == sum(run["rows"] for run in seen)


def test_a_large_run_comes_in_parts(site: ResultsSite) -> None:
    newest = site.get("open_orders").json()["newest"]
    site.add(*range(10_000, 12_500))
    pointer = until_newer(site, newest)
    parts, first = [], 0
    while first is not None:
        page = site.client.get(f"{pointer['page']}?first={first}").json()
        parts.append(ids(page))
        first = page["more"]
    assert [len(part) for part in parts] == [1_000, 1_000, 500]
    assert [identity for part in parts for identity in part] == list(range(10_000, 12_500))


def test_events_begin_where_the_client_was_and_go_on(site: ResultsSite) -> None:
    """The id of an event is the run; with it a new stream goes on without a loss or a repetition."""
    newest = site.get("open_orders").json()["newest"]
    site.add(21)
    position = until_newer(site, newest)["newest"]
    with site.client.stream("GET", f"/continuous/open_orders/events?after={position}") as stream:
        events = _events(stream)
        site.add(22)
        first = next(events)
    assert ids(first["data"]) == [22]
    site.add(23)
    with site.client.stream(
        "GET", "/continuous/open_orders/events", headers={"last-event-id": first["id"], "accept": "text/event-stream"}
    ) as stream:
        second = next(_events(stream))
    assert ids(second["data"]) == [23]
    assert int(second["id"]) > int(first["id"])


def test_a_socket_carries_the_same_pages(site: ResultsSite) -> None:
    position = site.get("open_orders").json()["newest"] or 0
    url = site.url.replace("http", "ws", 1)
    with connect(f"{url}/continuous/open_orders/socket?after={position}") as socket:
        site.add(31)
        page = json.loads(socket.recv(60))
    assert ids(page) == [31]
    assert page == site.get(f"open_orders/runs/{page['run']}").json()
    with pytest.raises(InvalidStatus):
        connect(f"{url}/continuous/unknown/socket")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("unknown", 404), ("unknown/runs", 404), ("unknown/runs/1", 404), ("unknown/events", 404),
        ("open_orders/runs/1", 404), ("open_orders/runs?after=x", 400), ("open_orders/runs?limit=0", 400),
        ("open_orders/events?after=-1", 400), ("open_orders/runs?limit=1001", 400),
    ],
)  # fmt: skip
def test_a_wrong_request_gets_a_problem_that_is_not_stored(site: ResultsSite, path: str, status: int) -> None:
    answer = site.get(path, status)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["cache-control"] == "no-store"


def test_a_query_without_results_has_a_pointer_to_nothing(site: ResultsSite) -> None:
    assert site.get("empty").json() == {"query": "empty", "newest": None, "page": None}
    assert site.get("empty/runs").json() == {"query": "empty", "runs": [], "next": 0}


def test_a_dependency_decides_who_reads(mongo_url: str, tmp_path: Path) -> None:
    """Every route refuses a client without the right, and no shared cache may keep what the others receive."""

    def signed_in(authorization: str = Header("")) -> None:
        if authorization != "Bearer right":
            raise HTTPException(401)

    with results_site(mongo_url, tmp_path, scope=None, dependencies=[Depends(signed_in)]) as site:
        site.add(1)
        for path in ("open_orders", "open_orders/runs", "open_orders/runs/1", "open_orders/events"):
            site.get(path, 401)
        end_s = time.monotonic() + 60
        while (run := site.get("open_orders", authorization="Bearer right").json())["newest"] is None:
            assert time.monotonic() < end_s
            time.sleep(0.02)
        page = site.get(f"open_orders/runs/{run['newest']}", authorization="Bearer right")
        assert page.headers["cache-control"].startswith("private,")
        with pytest.raises(InvalidStatus):
            connect(f"{site.url.replace('http', 'ws', 1)}/continuous/open_orders/socket")


def test_nobody_reads_unless_somebody_decides() -> None:
    with pytest.raises(ConfigurationError, match="nobody decides who may read"):
        ContinuousResults(Quaestor(grid=False))


def _events(stream: httpx.Response) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream, without comments."""
    event: dict[str, Any] = {}
    for line in stream.iter_lines():
        if not line and "data" in event:
            yield event
            event = {}
        field, _, value = line.partition(": ")
        if field == "data":
            event["data"] = json.loads(value)
        elif field in ("id", "event"):
            event[field] = value
