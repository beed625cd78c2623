"""Results of a plan to the groups or subscriptions that they are for, in parts that fit into the memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from quaestor.channels.membership import NUMBER, Members, Membership
from quaestor.channels.rewriting.joining import TARGET
from quaestor.continuous.arrow_sql import selected
from quaestor.tables.files import TS_TYPE
from quaestor.tables.schema import TS

_MOST_ROWS: Final = 1_000_000
"""Results of single subscriptions in one part, about: a group is not divided."""


def parameters_in_use(members: Members) -> Any:
    """Return the different parameters as the relation that plans join."""
    rows = members.parameters
    names = [TARGET if name == NUMBER else name for name in rows.schema.names]
    return rows.rename_columns(names).append_column(
        TS, pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows).cast(TS_TYPE)
    )


def fanned_out(rows: Any, members: Members, membership: Membership, *, individual: bool) -> Iterator[Any]:
    """Yield target, broker and record of each result, by broker and group.

    rows: number of the parameters and record.
    individual: whether targets are subscriptions; otherwise they are groups.
    """
    query = f"""SELECT place, broker, record, (sum(members) OVER (ORDER BY broker, place, record ROWS UNBOUNDED PRECEDING)
        - members) // {_MOST_ROWS} AS part FROM results JOIN groups USING ({NUMBER}) ORDER BY broker, place, record"""
    entries = selected(query, {"results": rows, "groups": members.groups}).combine_chunks()
    places, names = entries.column("place"), ["target", "broker", "record"]
    if not individual:
        yield pa.table([membership.group_ids(places), entries.column("broker"), entries.column("record")], names=names)
        return
    for first, count in _runs(entries.column("part")):
        part = entries.slice(first, count)
        ids, parents = members.of(part.column("place"))
        yield pa.table([ids, part.column("broker").take(parents), part.column("record").take(parents)], names=names)


def _runs(parts: Any) -> Iterator[tuple[int, int]]:
    """Yield the first row and the number of rows of each part."""
    first = 0
    for part in parts.value_counts().to_pylist() if len(parts) else ():
        yield first, part["counts"]
        first += part["counts"]
