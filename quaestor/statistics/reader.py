"""Reader of the job's results, without Spark: the newest windows from the event layer, the history from its files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import bson

from quaestor.event_layer.codec import BSON_OPTIONS
from quaestor.event_layer.connecting import event_layer
from quaestor.model import Version
from quaestor.ports import EventLayer
from quaestor.statistics import published
from quaestor.statistics.published import Counted, Windows
from quaestor.statistics.rows import COLLECTION, MATCH_MEASURES, QUERY, WRITE_MEASURES
from quaestor.tables.log import Table
from quaestor.tables.reading import table_rows

_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Write in the history: one of its rows.

    kind: a WriteKind, "unreadable", or "lost": then `lost` writes (None: an unknown number) are missing here.
    after: None for deletes, and when the record was gone already.
    """

    namespace: str
    kind: str
    version: Version
    key: Any
    after: Mapping[str, Any] | None
    after_exact: bool
    wall_ms: int
    lost: int | None


def newest(layer: EventLayer, deployment: str, lengths_s: Sequence[int]) -> list[Windows]:
    """Return the newest windows of each of these lengths. Raises EventLayerError."""
    return [published.get(layer, deployment, length_s) for length_s in lengths_s]


def writes(
    directory: Path, *, namespace: str | None = None, since_ms: int = 0, until_ms: int | None = None
) -> Iterator[Write]:
    """Yield the history, in no order: each write once, even during a compaction. Times are those of writes, until_ms exclusive.

    Bounded memory. Raises ConfigurationError without pyarrow, DependencyError if files are missing.
    """
    for row in table_rows(Table(directory / "history"), keep=lambda days: _within(days, since_ms, until_ms)):
        if namespace is not None and row["namespace"] != namespace:
            continue
        if since_ms <= row["wall_ms"] and (until_ms is None or row["wall_ms"] < until_ms):
            yield _write(row)


def _within(folders: Mapping[str, str], since_ms: int, until_ms: int | None) -> bool:
    day = folders.get("date", "")
    return _day(since_ms) <= day and (until_ms is None or day <= _day(until_ms))


def _day(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).date().isoformat()


def _write(row: Mapping[str, Any]) -> Write:
    key, after = row["key"], row["after"]
    return Write(
        namespace=row["namespace"],
        kind=row["kind"],
        version=row["version"],
        key=None if key is None else bson.decode(key, BSON_OPTIONS)["_id"],
        after=None if after is None or row["kind"] == "unreadable" else bson.decode(after, BSON_OPTIONS),
        after_exact=row["after_exact"],
        wall_ms=row["wall_ms"],
        lost=row["lost"],
    )


def show(redis_url: str, deployment: str, lengths_s: Sequence[int], *, as_json: bool) -> str:
    """Return the text that `quaestor statistics show` prints. Raises EventLayerError."""
    with closing(event_layer(redis_url, deployment)) as layer:
        windows_found = newest(layer, deployment, lengths_s)
    return to_json(windows_found) if as_json else text(windows_found, deployment)


def to_json(several: Sequence[Windows]) -> str:
    """Return one JSON object on one line."""
    return json.dumps([_as_json(windows) for windows in several])


def _as_json(windows: Windows) -> Mapping[str, Any]:
    return {
        "length_s": windows.length_s,
        "at_ms": windows.at_ms,
        "windows": [
            {
                "start_ms": start_ms,
                "rows": [
                    {
                        "scope": row.scope,
                        "name": row.name,
                        "counts": dict(row.measures),
                        "top": [list(p) for p in row.top],
                    }
                    for row in rows
                ],
            }
            for start_ms, rows in windows.by_start.items()
        ],
    }


def text(several: Sequence[Windows], deployment: str) -> str:
    """Return the newest window of each length, for people."""
    lines: list[str] = []
    for windows in several:
        if not windows.by_start:
            lines.append(f"no window of {windows.length_s} s yet in deployment {deployment}: quaestor statistics run")
            continue
        start_ms, rows = list(windows.by_start.items())[-1]
        begun = datetime.fromtimestamp(start_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        lines.append(f"{begun} UTC, {windows.length_s} s")
        for scope, measures in ((COLLECTION, WRITE_MEASURES), (QUERY, (*MATCH_MEASURES, "miss", "hit"))):
            shown = sorted((row for row in rows if row.scope == scope), key=lambda row: (-_total(row), row.name))
            lines += [_line(row, measures, windows.length_s) for row in shown[:_SHOWN]]
        lines += [_line(row, tuple(row.measures), windows.length_s) for row in rows if not row.name]
    return "\n".join(lines)


def _total(row: Counted) -> int:
    return sum(map(abs, row.measures.values()))


def _line(row: Counted, measures: Sequence[str], length_s: int) -> str:
    rates = "  ".join(f"{name} {row.measures[name] / length_s:.1f}/s" for name in measures if row.measures.get(name))
    top = ", ".join(f"{item} x{count}" for item, count in row.top[:3])
    return f"  {row.scope} {row.name or 'all'}: {rates}{f'   most: {top}' if top else ''}".replace("\n", " ")
