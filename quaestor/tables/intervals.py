"""Versions of records with the intervals in which they were valid.

The table holds the instant from which each version is valid. The end follows from the next version of the same key, so it is
derived when the table is read. A version without a known successor has no end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from quaestor.tables.changes import Snapshot
from quaestor.tables.files import TS_TYPE
from quaestor.tables.inference import DELETED, ID
from quaestor.tables.schema import TS
from quaestor.tables.versioned import VersionedTable

VALID_FROM: Final = "valid_from"
VALID_TO: Final = "valid_to"
_PLACE: Final = "_place"


def versions(table: VersionedTable, snapshot: Snapshot, upto: int, columns: Sequence[str] | None = None) -> Any:
    """Return all versions up to an instant: an Arrow table of the columns, `valid_from` and `valid_to`.

    columns: names; None: all.

    A version is valid at every instant t with valid_from <= t < valid_to; NULL: its successor is not known at `upto`. A deletion
    ends the version before it, and is no version itself. The interval of a version that one transaction replaced is empty.
    """
    names = [name for name in table.schema(snapshot).names if name != DELETED] if columns is None else list(columns)
    rows = table.scan(snapshot, -1, upto, [*dict.fromkeys([ID, DELETED, *names])])
    rows = rows.append_column(_PLACE, pa.array(range(rows.num_rows), pa.int64()))
    rows = rows.sort_by([(ID, "ascending"), (TS, "ascending"), (_PLACE, "ascending")]).combine_chunks()
    ends = pa.nulls(rows.num_rows, TS_TYPE)
    if rows.num_rows > 1:
        keys, starts = rows.column(ID).combine_chunks(), rows.column(TS).combine_chunks()
        same = pc.equal(keys.slice(0, rows.num_rows - 1), keys.slice(1))
        ends = pa.concat_arrays([pc.if_else(same, starts.slice(1), pa.scalar(None, TS_TYPE)), pa.nulls(1, TS_TYPE)])
    result = rows.append_column(VALID_TO, ends).filter(pc.invert(rows.column(DELETED)))
    return result.select([*names, TS, VALID_TO]).rename_columns([*names, VALID_FROM, VALID_TO])
