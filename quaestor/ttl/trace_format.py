"""Trace format: what was read, from cache or not, and what changed, as lines of JSON. Documented in docs/trace_format.md.

The first line is an object that names the format, its version, when recording began and which share of the results is in it; each
further one an array that begins with what happened and when (ms since the beginning); the last one counts the lines before
it. A file without that last line is a trace whose recording goes on, or was cut: its whole lines are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from quaestor.errors import ConfigurationError

FORMAT: Final = "quaestor trace"
VERSION: Final = 1
FILLED, SERVED, CHANGED, WITHDRAWN, ENDED = "f", "s", "c", "w", "e"
_LONGEST_LINE: Final = 65_536


class Filled(NamedTuple):
    """A result that was read from the database, and kept.

    at_ms: since the beginning, like every time here.
    result: what stands for it.
    queries: what stands for each of its queries.
    given_ms: lifetime of copies outside; None: there are none.
    watched_ms: for so long it is guarded; None: until it changes.
    rate_hz: of the writes to its members.
    kind: collections it was read from, with the classes of the queries: see query_classes.
    """

    at_ms: int
    result: str
    queries: tuple[str, ...]
    given_ms: int | None
    watched_ms: int | None
    rate_hz: float
    kind: str


class Served(NamedTuple):
    """A result that was served from this process's memory, so often in the second before."""

    at_ms: int
    result: str
    times: int


class Changed(NamedTuple):
    """A query whose result has changed."""

    at_ms: int
    query: str


class Withdrawn(NamedTuple):
    """A query that is no longer guarded, though nothing was written."""

    at_ms: int
    query: str


Record = Filled | Served | Changed | Withdrawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Trace that was read.

    started_ms: when recording began, since the epoch.
    share: of the results that are in it (0..1).
    full: whether recording ended because the file had reached its size.
    ended: whether recording ended; otherwise it goes on, or the process was killed.
    """

    started_ms: int
    share: float
    full: bool
    ended: bool
    records: tuple[Record, ...]


def header(*, started_ms: int, share: float) -> str:
    """First line."""
    return json.dumps({"format": FORMAT, "version": VERSION, "started_ms": started_ms, "share": share}) + "\n"


def line(record: Record) -> str:
    """Line of one record."""
    match record:
        case Filled():
            fields: list[Any] = [FILLED, *record]
        case Served():
            fields = [SERVED, *record]
        case Changed():
            fields = [CHANGED, *record]
        case Withdrawn():
            fields = [WITHDRAWN, *record]
    return json.dumps(fields, separators=(",", ":")) + "\n"


def end(lines: int, *, full: bool) -> str:
    """Last line.

    lines: so many are before it, the first one included.
    """
    return json.dumps([ENDED, lines, full], separators=(",", ":")) + "\n"


def read(path: Path) -> Trace:
    """Read a trace, also while a process writes to it: a last line that is not whole yet does not count. Raises
    ConfigurationError in one sentence for a file that is no trace, has another version or a damaged line."""
    try:
        with path.open(encoding="utf-8") as file:
            lines = iter(lambda: file.readline(_LONGEST_LINE), "")
            started_ms, share = _header(path, next(lines, ""))
            records, full, ended = _records(path, lines)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the trace {path} cannot be read: {error}") from error
    return Trace(started_ms=started_ms, share=share, full=full, ended=ended, records=tuple(records))


def _header(path: Path, text: str) -> tuple[int, float]:
    try:
        first = json.loads(text)
        if first["format"] != FORMAT:
            raise ValueError
        version, started_ms, share = first["version"], int(first["started_ms"]), float(first["share"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigurationError(f"{path} is no trace: its first line does not name the format {FORMAT!r}") from error
    if version != VERSION:
        raise ConfigurationError(
            f"the trace {path} has version {str(version)[:20]}, this Quaestor reads version {VERSION}; record it again"
        )
    if not 0 < share <= 1:
        raise ConfigurationError(f"the trace {path} names a share of {share}, outside 0..1; record it again")
    return started_ms, share


def _records(path: Path, lines: Iterator[str]) -> tuple[list[Record], bool, bool]:
    """The records, whether the file was full, and whether recording ended."""
    records: list[Record] = []
    for number, text in enumerate(lines, start=2):
        try:
            what, *fields = json.loads(text)
            if what == ENDED:
                counted, full = fields
                if counted != number - 1 or next(lines, ""):
                    raise ValueError(f"its last line counts {counted} before it")
                return records, bool(full), True
            records.append(_record(what, fields))
        except (ValueError, TypeError, RecursionError) as error:
            if not text.endswith("\n") and len(text) < _LONGEST_LINE:
                break  # being written at this moment, or cut by the end of its process
            raise ConfigurationError(f"the trace {path} is damaged in line {number}: {str(error)[:100]}") from error
    return records, False, False


def _record(what: str, fields: list[Any]) -> Record:
    if what == FILLED:
        at_ms, result, queries, given_ms, watched_ms, rate_hz, kind = fields
        return Filled(
            int(at_ms), str(result), tuple(map(str, queries)), None if given_ms is None else int(given_ms),
            None if watched_ms is None else int(watched_ms), float(rate_hz), str(kind),
        )  # fmt: skip
    if what == SERVED:
        at_ms, result, times = fields
        return Served(int(at_ms), str(result), int(times))
    if what in (CHANGED, WITHDRAWN):
        at_ms, query = fields
        return (Changed if what == CHANGED else Withdrawn)(int(at_ms), str(query))
    raise ValueError(f"nothing is known of records {str(what)[:10]!r}")
