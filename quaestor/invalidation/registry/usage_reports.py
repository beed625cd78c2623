"""Usage reports: numbers of hits per query, gathered in one app process and sent to the matching nodes every few seconds.

The nodes keep the queries that save most (matching/eviction.py). A report is a hint: bounded, and without the least read
queries. Hits in the second before an entry died may be missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from quaestor.event_layer import streams
from quaestor.event_layer.partitioning import query_partition
from quaestor.model import GridShape, Usage

REPORT_EVERY_MS: Final = 3_000
MOST_REPORTED: Final = 1_000
"""Most-read queries, and registrations of other processes, in one report."""
_MOST_GATHERED: Final = 100_000

Served = Iterable[tuple[Sequence[str], int]]
"""(registrations of an entry, number of its hits)"""


class UsageReports:
    """Reads of one app process by query, until they are reported. Costs the hit path nothing. Not thread-safe."""

    def __init__(self, *, deployment: str, tenant: str | None = None) -> None:
        self._deployment = deployment
        self._tenant = tenant or deployment
        self._queries: Counter[str] = Counter()
        self._foreign: Counter[str] = Counter()
        self._due_ms = 0

    def gather(self, served: Served, query_of: Callable[[str], str | None], *, origin: str) -> None:
        """Take in the hits since the last call.

        query_of: returns the query behind a live registration of this process.
        """
        for registrations, reads in served:
            for registration_id in registrations:
                query_id = query_of(registration_id)
                if query_id is not None:
                    self._queries[query_id] += reads
                elif not registration_id.startswith(origin):
                    self._foreign[registration_id] += reads
        for gathered in (self._queries, self._foreign):
            if len(gathered) > _MOST_GATHERED:
                gathered.clear()  # no report has taken the counts for long

    def due(self, shape: GridShape, *, now_ms: int) -> Iterator[tuple[str, Usage]]:
        """Yield query pipelines with their reports, every few seconds; unread queries are left out."""
        if now_ms < self._due_ms:
            return
        self._due_ms = now_ms + REPORT_EVERY_MS
        by_partition: dict[int, Counter[str]] = {}
        for query_id, reads in self._queries.items():
            partition = query_partition(query_id, shape.query_partitions)
            by_partition.setdefault(partition, Counter())[query_id] = reads
        foreign = tuple(self._foreign.most_common(MOST_REPORTED))
        self._queries.clear()
        self._foreign.clear()
        for partition in range(shape.query_partitions) if foreign else sorted(by_partition):
            queries = tuple(by_partition.get(partition, Counter()).most_common(MOST_REPORTED))
            usage = Usage(tenant=self._tenant, queries=queries, registrations=foreign)
            yield streams.queries(self._deployment, partition, shape.generation), usage
