"""`quaestor demo --once`: the promises, checked from outside, one after the other, on the running stack.

Writes are made by another process with plain pymongo. What is cached, and where, is told from response headers, what is
right from the database itself. Latencies run from the moment the writer's call returned to the arrival of the first
answer that no longer was the old one, so they include that answer's own way.
"""

from __future__ import annotations

import io
import json
import os
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pybloom_live
import pymongo
from pydantic import TypeAdapter

from quaestor.demo.flights_app import NOT_YET_DEPARTED
from quaestor.demo.other_process import OtherProcess
from quaestor.demo.probe import Answer, Probe, Watch, one_probe_a_worker, until
from quaestor.demo.served import ServedFrom
from quaestor.demo.stack import Stack
from quaestor.demo.steps import Steps, percentiles_ms
from quaestor.invalidation.matching.partitioning import query_partition, write_partition
from quaestor.invalidation.query.plan import plan_query
from quaestor.model import Cell, Operation, Query

LIMIT = 10
PATH, OTHER_PATH = (f"/departures/{origin}?limit={LIMIT}" for origin in ("JFK", "EWR"))
FILTER = {"origin": "JFK", "status": {"$in": NOT_YET_DEPARTED}}
SORT = [("scheduled", 1), ("_id", 1)]
"""What the handler behind PATH asks."""
SKETCH_PATH = "/quaestor/sketch"
_AS_THE_APP_DOES = TypeAdapter(list[dict[str, Any]])
WRITES = 200
PATIENCE_S = 10.0

SETTINGS = {"QUAESTOR_CLIENT_TTL": "estimated", "QUAESTOR_TTL_MIN_MS": "4000", "QUAESTOR_TTL_MAX_MS": "6000"}
"""Short enough to see copies die, long enough that nothing expires between two requests of one step."""
LONGEST_COPY_S = 8.0
"""The longest lifetime, and the slack that is given to copies on their way."""
SKETCH_REFRESH_S = 1.0
"""The sketch that is handed out may be this old."""


class Script:
    """One run on a stack that serves no other traffic."""

    def __init__(self, stack: Stack, steps: Steps) -> None:
        self._stack = stack
        self._steps = steps
        self._exit = ExitStack()

    def run(self) -> bool:
        """Every step; returns whether all held."""
        with self._exit:
            self._open()
            self._first_and_second()
            self._unrelated_write()
            for name, operation, arguments in self._writes():
                self._write_changes_result(name, operation, arguments)
            self._sketch()
            self._killed_node()
            self._many_writes()
        return self._steps.held

    def _open(self) -> None:
        stack = self._stack
        host = urlsplit(stack.front_url).netloc
        self._apps = one_probe_a_worker(stack.app_url, stack.workers, host=host)
        self._varnish = Probe(stack.varnish_url, host=host) if stack.varnish_url else None
        for probe in self._probes():
            self._exit.callback(probe.close)
        for probe in self._apps:  # a worker caches from the moment it has heard of every cell
            until(probe, "/airlines", lambda answer: answer.served_from is ServedFrom.APP, timeout_s=30, every_s=0.05)
        self._writer = self._exit.enter_context(OtherProcess(stack.mongo_url, stack.database))
        client: pymongo.MongoClient[dict[str, Any]] = self._exit.enter_context(
            pymongo.MongoClient(stack.mongo_url, tz_aware=True)
        )
        self._flights = client[stack.database].flights

    def _probes(self) -> list[Probe]:
        return [*self._apps, self._varnish] if self._varnish else self._apps

    # What the database says is right

    def _board(self) -> Any:
        flights = list(self._flights.find(FILTER).sort(SORT).limit(LIMIT))
        return json.loads(_AS_THE_APP_DOES.dump_json(flights))

    # Steps

    def _first_and_second(self) -> None:
        first = self._apps[0].get(PATH)
        self._steps.record(
            "the first GET runs the handler",
            first.served_from is ServedFrom.HANDLER and first.json() == self._board(),
            _told(first),
        )
        second = self._apps[0].get(PATH)
        self._steps.record(
            "the second GET is a hit with the same bytes",
            second.served_from is ServedFrom.APP and second.body == first.body,
            _told(second),
        )
        for probe in self._apps[1:]:
            other = probe.get(PATH)
            self._steps.record(
                "another worker has it too",
                other.served_from is ServedFrom.APP and other.body == first.body and other.worker != second.worker,
                _told(other),
            )
        if self._varnish is None:
            self._steps.skip("the second GET through Varnish is a hit in Varnish", "Varnish is not installed")
            return
        self._varnish.get(PATH)
        hit = self._varnish.get(PATH)
        self._steps.record(
            "the second GET through Varnish is a hit in Varnish",
            hit.served_from is ServedFrom.VARNISH and hit.body == first.body,
            _told(hit),
        )

    def _unrelated_write(self) -> None:
        """A second board shows when the write has gone all the way; then the first one must still be cached."""
        before = self._cached(OTHER_PATH, self._apps[0])
        self._cached_everywhere()
        watch = Watch(self._apps[:1], OTHER_PATH, lambda answer: answer.body != before.body, timeout_s=PATIENCE_S)
        acknowledged_ns = self._writer.write(
            "update_one", {"_id": before.json()[0]["_id"]}, {"$set": {"status": "boarding", "gate": "A1"}}
        )
        (seen,) = watch.wait()
        time.sleep(0.5)
        answers = [probe.get(PATH) for probe in self._probes()]
        self._steps.record(
            "a write to another airport's flight leaves the hit",
            seen is not None and all(answer.served_from is not ServedFrom.HANDLER for answer in answers),
            [_told(answer) for answer in answers],
            None if seen is None else _latency_ms(acknowledged_ns, seen),
        )

    def _writes(self) -> list[tuple[str, str, list[Any]]]:
        """Each changes the board: a flight before all others comes, changes in every way, and goes."""
        first = self._flights.find(FILTER).sort("scheduled", 1).limit(3).to_list()
        early: datetime = first[0]["scheduled"] - timedelta(minutes=5)
        flight = first[0] | {"_id": "2013-07-05:QX:1:JFK", "carrier": "QX", "flight": 1, "scheduled": early}
        one = {"_id": flight["_id"]}
        others = {"_id": {"$in": [member["_id"] for member in first]}}
        return [
            ("insert", "insert_one", [flight]),
            ("update", "update_one", [one, {"$set": {"status": "boarding"}}]),
            ("replace", "replace_one", [one, flight | {"tailnum": "N00001"}]),
            ("findAndModify", "find_one_and_update", [one, {"$set": {"gate": "B7"}}]),
            ("update_many", "update_many", [others, {"$set": {"gate": "C3"}}]),
            (
                "bulk_write",
                "bulk_write",
                [
                    [
                        ["update_one", one, {"$set": {"gate": "B8"}}],
                        ["insert_one", flight | {"_id": "2013-07-05:QX:2:JFK"}],
                    ]
                ],
            ),
            ("delete", "delete_one", [one]),
        ]

    def _write_changes_result(self, name: str, operation: str, arguments: Sequence[Any]) -> None:
        before = self._cached_everywhere()
        acknowledged_ns, seen = self._write_and_watch(before, operation, arguments)
        answers = self._until_right(seen)
        self._steps.record(
            f"{name} evicts, and the next GET shows the new data",
            all(answers) and before.json() != self._board(),
            self._by_probe(answers),
            _slowest_ms(acknowledged_ns, answers),
        )

    def _sketch(self) -> None:
        """The key is in the sketch from the write on, until the last copy handed out before it is dead; then it is gone."""
        self._sketch_after_s(contains=False, within_s=LONGEST_COPY_S + SKETCH_REFRESH_S + 2)  # from the steps before
        before = self._cached_everywhere()
        fresh = self._sketch_contains_key()
        acknowledged_ns, seen = self._write_and_watch(
            before, "update_one", [{"_id": before.json()[0]["_id"]}, {"$set": {"gate": "D4"}}]
        )
        stale_after_s = self._sketch_after_s(contains=True, within_s=SKETCH_REFRESH_S + 2)
        self._steps.record(
            "the sketch contains the key while an old copy may be alive",
            not fresh and stale_after_s is not None and all(seen),
            {"key": PATH, "before the write": fresh, "after it": stale_after_s is not None},
            _slowest_ms(acknowledged_ns, seen),
        )
        gone_after_s = self._sketch_after_s(contains=False, within_s=LONGEST_COPY_S + SKETCH_REFRESH_S + 2)
        self._steps.record(
            "and no longer after",
            gone_after_s is not None,
            "still there" if gone_after_s is None else f"gone {gone_after_s:.1f} s later",
        )

    def _sketch_contains_key(self) -> bool:
        answer = self._apps[0].get(SKETCH_PATH)
        sketch = pybloom_live.BloomFilter.fromfile(io.BytesIO(answer.body))
        return PATH in sketch

    def _sketch_after_s(self, *, contains: bool, within_s: float) -> float | None:
        """How long until the sketch did, or did not, contain the key; None if that did not come about."""
        started_s = time.monotonic()
        while (waited_s := time.monotonic() - started_s) < within_s:
            if self._sketch_contains_key() is contains:
                return waited_s
            time.sleep(0.1)
        return None

    def _killed_node(self) -> None:
        name = "SIGKILL of a matching node, then a write: still invalidated"
        before = self._cached_everywhere()
        flight_id = before.json()[0]["_id"]
        pids = self._stack.matching_node_pids()
        if not pids:
            self._steps.skip(name, "the matching node runs inside the app's process")
            return
        cell = _responsible(self._flights.full_name, flight_id, max(pids))
        pid = pids[cell]
        os.kill(pid, signal.SIGKILL)
        acknowledged_ns, seen = self._write_and_watch(
            before, "update_one", [{"_id": flight_id}, {"$set": {"gate": "E5"}}]
        )
        answers = self._until_right(seen)
        self._steps.record(
            name,
            all(answers),
            {"killed": f"cell {cell.query_partition}, {cell.write_partition}: process {pid}"} | self._by_probe(answers),
            _slowest_ms(acknowledged_ns, answers),
        )
        recovered = until(
            self._apps[0], PATH, lambda answer: answer.served_from is ServedFrom.APP, timeout_s=30, every_s=0.05
        )
        self._steps.record(
            "and the node comes back by itself",
            recovered is not None,
            "hits again" if recovered else "no hit within 30 s",
            None if recovered is None else _latency_ms(acknowledged_ns, recovered),
        )

    def _many_writes(self) -> None:
        evicted_ns: list[int] = []
        purged_ns: list[int] = []
        missed = 0
        for number in range(WRITES):
            before = self._cached_everywhere()
            acknowledged_ns, seen = self._write_and_watch(
                before, "update_one", [{"_id": before.json()[number % 10]["_id"]}, {"$set": {"gate": f"F{number}"}}]
            )
            if not all(seen):
                missed += 1
                continue
            latencies_ns = [answer.at_ns - acknowledged_ns for answer in seen if answer]
            evicted_ns.append(max(0, *latencies_ns[: len(self._apps)]))
            purged_ns.append(max(0, latencies_ns[-1]))
        self._record_latencies(f"{WRITES} writes, from acknowledged to evicted in every worker", evicted_ns, missed)
        name = f"{WRITES} writes, from acknowledged to purged from Varnish"
        if self._varnish is None:
            self._steps.skip(name, "Varnish is not installed")
        else:
            self._record_latencies(name, purged_ns, missed)

    def _record_latencies(self, name: str, latencies_ns: list[int], missed: int) -> None:
        ok = missed == 0 and len(latencies_ns) == WRITES
        self._steps.record(name, ok, f"{missed} missed", percentiles_ms(latencies_ns) if latencies_ns else None)

    # Caching and watching

    def _cached(self, path: str, probe: Probe, *, where: ServedFrom = ServedFrom.APP) -> Answer:
        """Ask until it is cached there; the answer. The last answer if it never is: the step will say so."""
        found = until(probe, path, lambda answer: answer.served_from is where, timeout_s=PATIENCE_S)
        return found or probe.get(path)

    def _cached_everywhere(self) -> Answer:
        for probe in self._apps:
            answer = self._cached(PATH, probe)
        if self._varnish is not None:
            answer = self._cached(PATH, self._varnish, where=ServedFrom.VARNISH)
        return answer

    def _write_and_watch(
        self, before: Answer, operation: str, arguments: Sequence[Any]
    ) -> tuple[int, list[Answer | None]]:
        """Returns when the write was acknowledged (wall-clock ns) and what each probe first saw after the old answer."""
        watch = Watch(self._probes(), PATH, lambda answer: answer.body != before.body, timeout_s=PATIENCE_S)
        acknowledged_ns = self._writer.write(operation, *arguments)
        return acknowledged_ns, watch.wait()

    def _until_right(self, seen: Sequence[Answer | None]) -> list[Answer | None]:
        """What was seen, if it already shows the whole write; else the first answer that does. A write of several records
        is several changes, and an answer between them is right for its moment."""
        now = self._board()

        def right(answer: Answer) -> bool:
            return bool(answer.json() == now)

        return [
            answer if answer and right(answer) else until(probe, PATH, right, timeout_s=PATIENCE_S)
            for answer, probe in zip(seen, self._probes(), strict=True)
        ]

    def _by_probe(self, answers: Sequence[Answer | None]) -> dict[str, Any]:
        names = [f"worker {number}" for number in range(1, len(self._apps) + 1)] + ["Varnish"] * bool(self._varnish)
        return {
            name: _told(answer) if answer else "still the old data" for name, answer in zip(names, answers, strict=True)
        }


def _responsible(namespace: str, flight_id: str, last: Cell) -> Cell:
    """The one cell that has to notice a write to this flight for the board's query. last: the grid's last cell."""
    query = Query(namespace=namespace, operation=Operation.FIND, filter=FILTER, sort=tuple(SORT), limit=LIMIT)
    return Cell(
        query_partition=query_partition(plan_query(query).query_id, last.query_partition + 1),
        write_partition=write_partition(flight_id, last.write_partition + 1),
    )


def _told(answer: Answer) -> dict[str, Any]:
    told: dict[str, Any] = {"from": answer.served_from.value, "worker": answer.worker}
    for name in ("cache-status", "age"):
        if name in answer.headers:
            told[name] = answer.headers[name]
    return told if answer.status == 200 else told | {"status": answer.status}


def _latency_ms(acknowledged_ns: int, answer: Answer) -> float:
    """Never below 0: an entry may be gone before the writer has its acknowledgement."""
    return round(max(0, answer.at_ns - acknowledged_ns) / 1e6, 1)


def _slowest_ms(acknowledged_ns: int, answers: Sequence[Answer | None]) -> float | None:
    return max((_latency_ms(acknowledged_ns, answer) for answer in answers if answer), default=None)
