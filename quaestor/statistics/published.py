"""Published windows: the newest ones as small values in the event layer, readable without Spark.

One value for each length, BSON: `{"v": 1, "s": length, "at": ms, "w": [[start ms, [[scope, name, {measure: n}, [[item,
n]]]]]]}`, oldest window first. Zero counts are left out. Writing the same windows again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import bson
from bson.errors import BSONError

from quaestor.ports import EventLayer
from quaestor.statistics.rows import MEASURES

FORMAT: Final = 1
MOST_WINDOWS: Final = 30
MOST_NAMES: Final = 20
"""Largest number of collections, and of queries, in one window."""
MOST_ITEMS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """One row of one window.

    scope, name, measures: see rows.py.
    top: (record's key as text, count), most frequent first.
    """

    scope: str
    name: str
    measures: Mapping[str, int]
    top: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Newest windows of one length.

    at_ms: time of their writing.
    by_start: rows by the windows' start (ms), oldest first.
    """

    length_s: int
    at_ms: int = 0
    by_start: Mapping[int, tuple[Counted, ...]] = field(default_factory=dict)


def value_name(deployment: str, length_s: int) -> str:
    """Return the name of the value with the windows of this length."""
    return f"quaestor:{{{deployment}:n}}:statistics:{length_s}"


def get(layer: EventLayer, deployment: str, length_s: int) -> Windows:
    """Return the published windows of this length; empty without any in this release's format. Raises EventLayerError."""
    value = layer.get(value_name(deployment, length_s))
    empty = Windows(length_s=length_s)
    if value is None:
        return empty
    try:
        fields = bson.decode(value)
        return _decoded(fields) if fields["v"] == FORMAT else empty
    except (BSONError, KeyError, TypeError, ValueError):
        return empty


def put(layer: EventLayer, deployment: str, rows: Iterable[Any], *, length_s: int, now_ms: int) -> None:
    """Add final windows to the published ones; the oldest give way.

    rows: result of windows.busiest. Raises EventLayerError.
    """
    fresh: dict[int, list[Counted]] = {}
    for row in rows:
        if row["window_s"] == length_s:
            fresh.setdefault(int(row["start"].timestamp() * 1000), []).append(_counted(row))
    if not fresh:
        return
    merged = dict(get(layer, deployment, length_s).by_start)
    for start_ms, counted in fresh.items():
        known = {(row.scope, row.name): row for row in (*merged.get(start_ms, ()), *counted)}
        merged[start_ms] = tuple(known.values())
    newest = {start_ms: merged[start_ms] for start_ms in sorted(merged)[-MOST_WINDOWS:]}
    windows = Windows(length_s=length_s, at_ms=now_ms, by_start=newest)
    layer.put(value_name(deployment, length_s), bson.encode(_encoded(windows)))


def _counted(row: Any) -> Counted:
    return Counted(
        scope=row["scope"],
        name=row["name"],
        measures={measure: row[measure] for measure in MEASURES if row[measure]},
        top=tuple((item["item"], item["count"]) for item in row["top"][:MOST_ITEMS]),
    )


def _encoded(windows: Windows) -> dict[str, Any]:
    rows_by_window = [
        [start_ms, [[row.scope, row.name, dict(row.measures), [list(pair) for pair in row.top]] for row in rows]]
        for start_ms, rows in windows.by_start.items()
    ]
    return {"v": FORMAT, "s": windows.length_s, "at": windows.at_ms, "w": rows_by_window}


def _decoded(fields: Mapping[str, Any]) -> Windows:
    return Windows(
        length_s=int(fields["s"]),
        at_ms=int(fields["at"]),
        by_start={int(start_ms): tuple(map(_row, rows)) for start_ms, rows in fields["w"]},
    )


def _row(fields: Sequence[Any]) -> Counted:
    scope, name, measures, top = fields
    return Counted(
        scope=scope,
        name=name,
        measures={measure: int(n) for measure, n in measures.items()},
        top=tuple((item, int(n)) for item, n in top),
    )
