"""Script of `quaestor demo --once`: checks the promises from outside, one after the other, on the running stack.

Another process makes the writes, with plain pymongo. Response headers show which cache holds an answer; the database shows the
right data. A latency begins when the writer's call has returned, and ends when the first answer with new data arrives. The way of
that answer is therefore included.
"""

from __future__ import annotations

import io
import json
import os
import signal
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pybloom_live

from quaestor.demo.officers.check import OfficersCheck
from quaestor.demo.stack import Stack
from quaestor.demo.steps import Steps, percentiles_ms
from quaestor.demo.watched_page import FILTER, LIMIT, OTHER_PATH, PATH, WatchedPage
from quaestor.testing.probe import Answer, until
from quaestor.testing.served_from import ServedFrom

SKETCH_PATH = "/quaestor/sketch"
WRITES = 200
UNRELATED_WRITES = 3

SETTINGS = {
    "QUAESTOR_CLIENT_TTL": "estimated",
    "QUAESTOR_TTL_MIN_MS": "4000",
    "QUAESTOR_TTL_MAX_MS": "6000",
    # Steps expect single requests to be cached, also on a machine that is busy for a moment.
    "QUAESTOR_ACTIVATION_DEADLINE_MS": "5000",
}
"""Settings with lifetimes short enough to see copies die, and long enough that nothing expires between two requests of a step."""
LONGEST_COPY_S = 8.0
"""Longest lifetime, with the slack for copies on their way."""
PUSH_PATIENCE_S = 15.0
CLOCK_S = 6.0
"""Time until the departure that leaves its list by the clock."""
CLOCK_TRIES = 3
SKETCH_REFRESH_S = 1.0
"""Greatest age of the sketch that the app hands out."""


def run(stack: Stack, steps: Steps) -> bool:
    """Run every step, on a stack that serves no other traffic; returns whether all held."""
    with WatchedPage(stack) as page:
        script = _Script(stack, page, steps)
        script.first_and_second_get()
        script.unrelated_write()
        for name, operation, arguments in script.writes():
            script.write_changes_result(name, operation, arguments)
        script.followed_board()
        script.followed_search()
        script.departure_by_the_clock()
        script.sketch()
        script.killed_node()
        script.many_writes()
    OfficersCheck(stack.officers_url, steps).run()
    return steps.held


class _Script:
    def __init__(self, stack: Stack, page: WatchedPage, steps: Steps) -> None:
        self._stack = stack
        self._page = page
        self._steps = steps

    def first_and_second_get(self) -> None:
        page = self._page
        first = page.apps[0].get(PATH)
        self._steps.record(
            "the first GET runs the handler",
            first.served_from is ServedFrom.HANDLER and first.json() == page.expected(),
            _description(first),
        )
        second = page.apps[0].get(PATH)
        self._steps.record(
            "the second GET is a hit with the same bytes",
            second.served_from is ServedFrom.APP and second.body == first.body,
            _description(second),
        )
        for probe in page.apps[1:]:
            other = probe.get(PATH)
            self._steps.record(
                "another worker has it too",
                other.served_from is ServedFrom.APP and other.body == first.body and other.worker != second.worker,
                _description(other),
            )
        name = "the second GET through Varnish is a hit in Varnish"
        if page.varnish is None:
            self._steps.skip(name, "there is no Varnish")
            return
        page.varnish.get(PATH)
        hit = page.varnish.get(PATH)
        self._steps.record(name, hit.served_from is ServedFrom.VARNISH and hit.body == first.body, _description(hit))

    def unrelated_write(self) -> None:
        """Check that an unrelated write does not evict. A second page shows when the write has passed all parts; then the first
        page must still be cached.

        On a loaded machine a lifetime may end meanwhile; a wrong eviction would appear every time.
        """
        name = "a write to another airport's flight leaves the hit"
        for _ in range(UNRELATED_WRITES):
            held, answers, latency_ms = self._unrelated_write()
            if held:
                break
        self._steps.record(name, held, self._by_probe(answers), latency_ms)

    def _unrelated_write(self) -> tuple[bool, list[Answer], float | None]:
        page = self._page
        before = page.cached(OTHER_PATH, page.apps[0])
        page.cached_everywhere()
        update = {"$set": {"status": "boarding", "gate": "A1"}}
        flight_id = before.json()[0]["_id"]
        written = page.write(before, "update_one", {"_id": flight_id}, update, path=OTHER_PATH, probes=page.apps[:1])
        time.sleep(0.5)  # for a wrong eviction to arrive
        answers = [probe.get(PATH) for probe in page.probes]
        held = all(written.seen) and all(answer.served_from is not ServedFrom.HANDLER for answer in answers)
        return held, answers, written.latency_ms()

    def writes(self) -> list[tuple[str, str, list[Any]]]:
        """Writes that change the page: a flight before all others is added, changes in every way, and is removed."""
        first = self._page.flights.find(FILTER).sort("scheduled", 1).limit(3).to_list()
        early: datetime = first[0]["scheduled"] - timedelta(minutes=5)
        flight = first[0] | {"_id": "2013-07-05:QX:1:JFK", "carrier": "QX", "flight": 1, "scheduled": early}
        by_id = {"_id": flight["_id"]}
        others = {"_id": {"$in": [member["_id"] for member in first]}}
        bulk = [
            ["update_one", by_id, {"$set": {"gate": "B8"}}],
            ["insert_one", flight | {"_id": "2013-07-05:QX:2:JFK"}],
        ]
        return [
            ("insert", "insert_one", [flight]),
            ("update", "update_one", [by_id, {"$set": {"status": "boarding"}}]),
            ("replace", "replace_one", [by_id, flight | {"tailnum": "N00001"}]),
            ("findAndModify", "find_one_and_update", [by_id, {"$set": {"gate": "B7"}}]),
            ("update_many", "update_many", [others, {"$set": {"gate": "C3"}}]),
            ("bulk_write", "bulk_write", [bulk]),
            ("delete", "delete_one", [by_id]),
        ]

    def write_changes_result(self, name: str, operation: str, arguments: Sequence[Any]) -> None:
        before = self._page.cached_everywhere()
        written = self._page.write(before, operation, *arguments)
        answers = self._page.until_right(written)
        self._steps.record(
            f"{name} evicts, and the next GET shows the new data",
            all(answers) and before.json() != self._page.expected(),
            self._by_probe(answers),
            written.latency_ms(answers),
        )

    def followed_board(self) -> None:
        """Check that an EventSource on the board receives the answer, and then the answer after a write."""
        page, headers = self._page, {"accept": "text/event-stream"}
        before = page.cached_everywhere()
        flight_id = before.json()[0]["_id"]
        with (
            httpx.Client(base_url=self._stack.app_url, timeout=PUSH_PATIENCE_S) as http,
            http.stream("GET", PATH, headers=headers) as answer,
        ):
            bodies = (
                json.loads(line.removeprefix("data: ")) for line in answer.iter_lines() if line.startswith("data: ")
            )
            first = next(bodies, None)
            page.flights.update_one({"_id": flight_id}, {"$set": {"gate": "E5"}})
            acknowledged_s = time.perf_counter()
            pushed = next(bodies, None)
            latency_ms = round(max(0.0, time.perf_counter() - acknowledged_s) * 1_000, 1)
        self._steps.record(
            "an EventSource on the board receives the new answer",
            first == before.json() and pushed == page.expected(),
            {"first": len(first or ()), "pushed": [flight.get("gate") for flight in pushed or ()][:1]},
            latency_ms,
        )

    def followed_search(self) -> None:
        """Check that a page of a search receives a post that is written while it is open, and no post without the text."""
        posts = self._page.flights.database.posts
        path = "/posts?search=quaestor&offset=0&limit=10"
        posts.replace_one({"_id": "first"}, {"text": "about quaestor", "at": datetime.now(UTC)}, upsert=True)
        with (
            httpx.Client(base_url=self._stack.app_url, timeout=PUSH_PATIENCE_S) as http,
            http.stream("GET", path, headers={"accept": "text/event-stream"}) as answer,
        ):
            bodies = (
                [post["_id"] for post in json.loads(line.removeprefix("data: "))]
                for line in answer.iter_lines()
                if line.startswith("data: ")
            )
            first = next(bodies, None)
            posts.insert_one({"_id": "other", "text": "about flights", "at": datetime.now(UTC)})
            posts.insert_one({"_id": "second", "text": "Quaestor again", "at": datetime.now(UTC)})
            acknowledged_s = time.perf_counter()
            pushed = next(bodies, None)
            latency_ms = round(max(0.0, time.perf_counter() - acknowledged_s) * 1_000, 1)
        self._steps.record(
            "a search of the stream receives a new post by push",
            first == ["first"] and pushed == ["second", "first"],
            {"first": first, "pushed": pushed},
            latency_ms,
        )

    def departure_by_the_clock(self) -> None:
        """Check that a departure leaves the cached list at its instant, without a write and without a purge.

        On a loaded machine the instant may come before every cache has the list; then a later departure is tried.
        """
        for number in range(CLOCK_TRIES):
            held, observed, latency_ms = self._departure(f"clock-{number}", CLOCK_S * (number + 1))
            if held:
                break
        self._steps.record(
            "a departure leaves the cached list at its instant, with no write and no purge", held, observed, latency_ms
        )

    def _departure(self, origin: str, within_s: float) -> tuple[bool, dict[str, Any], float | None]:
        page, path = self._page, f"/next-hour/{origin}"
        now_ms = time.time_ns() // 1_000_000
        soon, later = (
            datetime.fromtimestamp(now_ms / 1_000 + after_s, UTC).replace(microsecond=0)
            for after_s in (within_s, 1_800)
        )
        page.flights.database.timetable.insert_many(
            [
                {"_id": f"{origin}:{place}", "origin": origin, "dest": "LAX", "departs": departs}
                for place, departs in enumerate((soon, later))
            ]
        )
        departs_ns = int(soon.timestamp()) * 1_000_000_000
        whole, rest = [f"{origin}:0", f"{origin}:1"], [f"{origin}:1"]
        copies = [0] * len(page.probes)
        gone_ns = [0] * len(page.probes)
        wrong: list[list[str]] = []
        while not all(gone_ns) and time.time_ns() < departs_ns + int(PUSH_PATIENCE_S * 1e9):
            for place, probe in enumerate(page.probes):
                asked_ns = time.time_ns()
                answer = probe.get(path)
                listed = [flight["_id"] for flight in answer.json()]
                if (answer.at_ns < departs_ns and listed != whole) or (asked_ns > departs_ns and listed != rest):
                    wrong.append(listed)
                if listed == whole:
                    copies[place] += answer.served_from is not ServedFrom.HANDLER
                elif listed == rest:
                    gone_ns[place] = gone_ns[place] or answer.at_ns
            time.sleep(0.01)
        observed = {"copies before": copies, "wrong answers": wrong[:3]}
        latency_ms = round((max(gone_ns) - departs_ns) / 1e6, 1) if all(gone_ns) else None
        return not wrong and all(copies) and all(gone_ns), observed, latency_ms

    def sketch(self) -> None:
        """Check that the sketch contains the key from the write on, until the last earlier copy is dead, and not after that."""
        self._sketch_after_s(contains=False, within_s=LONGEST_COPY_S + SKETCH_REFRESH_S + 2)  # from the steps before
        before = self._page.cached_everywhere()
        fresh = self._sketch_after_s(contains=False, within_s=SKETCH_REFRESH_S + 2) is not None
        written = self._page.write(before, "update_one", {"_id": before.json()[0]["_id"]}, {"$set": {"gate": "D4"}})
        stale_after_s = self._sketch_after_s(contains=True, within_s=SKETCH_REFRESH_S + 2)
        self._steps.record(
            "the sketch contains the key while an old copy may be alive",
            fresh and stale_after_s is not None and all(written.seen),
            {"key": PATH, "before the write": not fresh, "after it": stale_after_s is not None},
            written.latency_ms(),
        )
        gone_after_s = self._sketch_after_s(contains=False, within_s=LONGEST_COPY_S + SKETCH_REFRESH_S + 2)
        self._steps.record(
            "and no longer after",
            gone_after_s is not None,
            "still there" if gone_after_s is None else f"gone {gone_after_s:.1f} s later",
        )

    def _sketch_contains_key(self) -> bool | None:
        """Whether the sketch contains the key. None: the sketch is refused, for example while a part of the grid lags."""
        answer = self._page.apps[0].get(SKETCH_PATH)
        return None if answer.status != 200 else PATH in pybloom_live.BloomFilter.fromfile(io.BytesIO(answer.body))

    def _sketch_after_s(self, *, contains: bool, within_s: float) -> float | None:
        """Time until the sketch did, or did not, contain the key; None if that did not happen in time."""
        started_s = time.monotonic()
        while (waited_s := time.monotonic() - started_s) < within_s:
            if self._sketch_contains_key() is contains:
                return waited_s
            time.sleep(0.1)
        return None

    def killed_node(self) -> None:
        """Kill the one node that has to notice the write, and check that the write still invalidates."""
        name = "SIGKILL of a matching node, then a write: still invalidated"
        page = self._page
        before = page.cached_everywhere()
        flight_id = before.json()[0]["_id"]
        pids = self._stack.matching_node_pids()
        if not pids:
            self._steps.skip(name, "the matching node runs inside the app's process")
            return
        cell = page.responsible_cell(flight_id, max(pids))
        os.kill(pids[cell], signal.SIGKILL)
        written = page.write(before, "update_one", {"_id": flight_id}, {"$set": {"gate": "E5"}})
        answers = page.until_right(written)
        killed = f"cell {cell.query_partition}, {cell.write_partition}: process {pids[cell]}"
        self._steps.record(
            name, all(answers), {"killed": killed} | self._by_probe(answers), written.latency_ms(answers)
        )
        recovered = until(
            page.apps[0], PATH, lambda answer: answer.served_from is ServedFrom.APP, timeout_s=30, every_s=0.05
        )
        self._steps.record(
            "and the node comes back by itself",
            recovered is not None and self._stack.matching_node_pids().get(cell) != pids[cell],
            "hits again" if recovered else "no hit within 30 s",
            written.latency_ms([recovered]),
        )

    def many_writes(self) -> None:
        page = self._page
        evicted_ms: list[float] = []
        purged_ms: list[float] = []
        for number in range(WRITES):
            before = page.cached_everywhere()
            flight_id = before.json()[number % LIMIT]["_id"]
            written = page.write(before, "update_one", {"_id": flight_id}, {"$set": {"gate": f"F{number}"}})
            if all(written.seen):
                workers = len(page.apps)
                evicted_ms.append(written.latency_ms(written.seen[:workers]) or 0.0)
                purged_ms.append(written.latency_ms(written.seen[workers:]) or 0.0)
        self._record_latencies(f"{WRITES} writes, from acknowledged to evicted in every worker", evicted_ms)
        name = f"{WRITES} writes, from acknowledged to purged from Varnish"
        if page.varnish is None:
            self._steps.skip(name, "there is no Varnish")
        else:
            self._record_latencies(name, purged_ms)

    def _record_latencies(self, name: str, latencies_ms: list[float]) -> None:
        missed = WRITES - len(latencies_ms)
        self._steps.record(
            name, missed == 0, f"{missed} missed", percentiles_ms(latencies_ms) if latencies_ms else None
        )

    def _by_probe(self, answers: Sequence[Answer | None]) -> dict[str, Any]:
        names = [f"worker {number}" for number in range(1, len(self._page.apps) + 1)] + ["Varnish"]
        descriptions = (_description(answer) if answer else "still the old data" for answer in answers)
        return dict(zip(names, descriptions, strict=False))


def _description(answer: Answer) -> dict[str, Any]:
    description: dict[str, Any] = {"from": answer.served_from.value, "worker": answer.worker}
    for name in ("cache-status", "age"):
        if name in answer.headers:
            description[name] = answer.headers[name]
    return description if answer.status == 200 else description | {"status": answer.status}
