"""Deliveries of published results: what a sink has not confirmed yet, in order; the confirmation is kept beside the results."""

from __future__ import annotations

import asyncio
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from quaestor.continuous.delivery.batch import ResultBatch
from quaestor.continuous.delivery.courier import Courier
from quaestor.continuous.delivery.sink import Sink
from quaestor.continuous.installed import OWN, ROW, RUN, InstalledQuery
from quaestor.continuous.plain_rows import plain_rows
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.schema import TS
from quaestor.tables.versioned import VersionedTable

MOST_ROWS: Final = 1_000
"""Rows of one delivery."""


async def deliver(query: InstalledQuery, sink: Sink, catalogue: Catalogue, courier: Courier) -> int:
    """Deliver all results of a query that a sink has not confirmed; return the number of rows.

    A process that ends in between delivers the same batches with the same keys again. Raises DependencyError.
    """
    delivered = 0
    for name in query.tables:
        table = await asyncio.to_thread(catalogue.open, name)
        while pending := await asyncio.to_thread(_pending, table, sink.name):
            for published, rows in groupby(pending, key=itemgetter(TS)):
                run = list(rows)
                batch = _batch(query.name, run)
                for part in batch.parts(MOST_ROWS):
                    await courier.deliver(sink, part)
                await asyncio.to_thread(_confirm, table, sink.name, published)
                delivered += len(run)
    return delivered


def confirmed(table: VersionedTable, sink: str) -> int:
    """Return the instant of the result table up to which a sink has everything. Raises DependencyError."""
    return table.snapshot().progress.get(_key(sink), 0)


def _key(sink: str) -> str:
    return f"delivered:{sink}"


def _pending(table: VersionedTable, sink: str) -> list[dict[str, Any]]:
    """Return rows that a sink has not confirmed, by publication and number: those up to the end of the next file.

    `ts` is an instant. An empty list: the sink has confirmed everything.
    """
    snapshot = table.snapshot()
    after = snapshot.progress.get(_key(sink), 0)
    for file in table.files(snapshot, after, snapshot.instant):
        rows = table.scan(snapshot, after, file.last)
        if rows.num_rows:
            instants = rows.column(TS).cast("int64")
            rows = rows.set_column(rows.schema.get_field_index(TS), TS, instants)
            return plain_rows(rows.sort_by([(TS, "ascending"), (ROW, "ascending")]))
    return []


def _batch(query: str, rows: list[dict[str, Any]]) -> ResultBatch:
    run = rows[0][RUN]
    values = [{name: value for name, value in row.items() if name not in OWN} for row in rows]
    return ResultBatch(query=query, run=run, instant=run, rows=values)


def _confirm(table: VersionedTable, sink: str, published: int) -> None:
    table.append((), progress={_key(sink): published})
