"""Page that the script watches: one departure board, in every app worker and in Varnish, with its right content."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import pymongo
from pydantic import TypeAdapter
from pymongo.collection import Collection

from quaestor.demo.flights_app import NOT_YET_DEPARTED
from quaestor.demo.stack import Stack
from quaestor.event_layer.partitioning import query_partition, write_partition
from quaestor.model import Cell, Operation, Query
from quaestor.planning.plan import plan_query
from quaestor.testing.other_process import OtherProcess
from quaestor.testing.probe import Answer, Probe, Watch, one_probe_a_worker, until
from quaestor.testing.served_from import ServedFrom

LIMIT = 10
PATH, OTHER_PATH = (f"/departures/{origin}?limit={LIMIT}" for origin in ("JFK", "EWR"))
FILTER = {"origin": "JFK", "status": {"$in": NOT_YET_DEPARTED}}
SORT = [("scheduled", 1), ("_id", 1)]
"""Sort of the query in the handler behind PATH."""
PATIENCE_S = 10.0
_AS_THE_APP_DOES = TypeAdapter(list[dict[str, Any]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Write, with the first answer of each probe that differs from the old one; None if none differed in time."""

    acknowledged_ns: int
    seen: Sequence[Answer | None]

    def latency_ms(self, answers: Sequence[Answer | None] | None = None) -> float | None:
        """Time from the acknowledgement to the last of these answers (those seen, if not given); None without any.

        Never below 0, because an entry may be gone before the writer has its acknowledgement.
        """
        arrived_ns = [answer.at_ns for answer in (self.seen if answers is None else answers) if answer]
        return round(max(0, max(arrived_ns) - self.acknowledged_ns) / 1e6, 1) if arrived_ns else None


class WatchedPage:
    """Watched departure board, as a context manager.

    apps: one probe for each worker.
    varnish: one probe through Varnish, None without it.

    All probes send the same Host, so that they ask for the same page.

    flights: collection with the right data.
    """

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._exit = ExitStack()

    def __enter__(self) -> WatchedPage:
        stack = self._stack
        host = urlsplit(stack.front_url).netloc
        with ExitStack() as opening:
            self.apps = one_probe_a_worker(stack.app_url, stack.workers, host=host)
            self.varnish = Probe(stack.varnish_url, host=host) if stack.varnish_url else None
            for probe in self.probes:
                opening.callback(probe.close)
            for probe in self.apps:  # a worker caches from the moment it has heard of every cell
                self.cached("/airlines", probe, patience_s=30)
            self._writer = opening.enter_context(OtherProcess(stack.mongo_url, stack.database))
            client = opening.enter_context(pymongo.MongoClient[dict[str, Any]](stack.mongo_url, tz_aware=True))
            self.flights: Collection[dict[str, Any]] = client[stack.database].flights
            self._exit = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()

    @property
    def probes(self) -> list[Probe]:
        """Probes of every server of the page."""
        return [*self.apps, self.varnish] if self.varnish else self.apps

    def expected(self) -> Any:
        """Flights that the page should show now, according to the database."""
        flights = list(self.flights.find(FILTER).sort(SORT).limit(LIMIT))
        return json.loads(_AS_THE_APP_DOES.dump_json(flights))

    def cached(
        self, path: str, probe: Probe, *, where: ServedFrom = ServedFrom.APP, patience_s: float = PATIENCE_S
    ) -> Answer:
        """Ask until the path is cached there, and return the answer. Returns the last answer if it never is cached; the step then
        fails."""
        cached_answer = until(probe, path, lambda answer: answer.served_from is where, timeout_s=patience_s)
        return cached_answer or probe.get(path)

    def cached_everywhere(self) -> Answer:
        """Answer with the page, once every worker and Varnish hold it."""
        for probe in self.apps:
            answer = self.cached(PATH, probe)
        if self.varnish is not None:
            answer = self.cached(PATH, self.varnish, where=ServedFrom.VARNISH)
        return answer

    def write(
        self, before: Answer, operation: str, *arguments: Any, path: str = PATH, probes: Sequence[Probe] | None = None
    ) -> Written:
        """Let the other process write. Watch from before that until each probe (all, if not given) receives another answer
        at the path."""
        watch = Watch(probes or self.probes, path, lambda answer: answer.body != before.body, timeout_s=PATIENCE_S)
        acknowledged_ns = self._writer.write(operation, *arguments)
        return Written(acknowledged_ns=acknowledged_ns, seen=watch.wait())

    def until_right(self, written: Written) -> list[Answer | None]:
        """Answers that were seen, if they show the whole write already, else the first that do. A write of several records is
        several changes, and an answer between two of them is right for its moment."""
        now = self.expected()

        def right(answer: Answer) -> bool:
            return bool(answer.json() == now)

        return [
            answer if answer and right(answer) else until(probe, PATH, right, timeout_s=PATIENCE_S)
            for answer, probe in zip(written.seen, self.probes, strict=True)
        ]

    def responsible_cell(self, flight_id: str, last: Cell) -> Cell:
        """Cell that has to notice a write to this flight for the page's query.

        last: the grid's last cell.
        """
        query = Query(
            namespace=self.flights.full_name, operation=Operation.FIND, filter=FILTER, sort=tuple(SORT), limit=LIMIT
        )
        return Cell(
            query_partition=query_partition(plan_query(query).query_id, last.query_partition + 1),
            write_partition=write_partition(flight_id, last.write_partition + 1),
        )
