"""Batches of results: rows of one run, each with its idempotency key, and their form in JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from quaestor.tables.instants import datetime_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultBatch:
    """Rows of one run of a query, or a part of them.

    query: name of the installed query.
    instant: of the run, microseconds since 1970.
    first: number of the first row in its run, from 0.
    """

    query: str
    run: int
    instant: int
    rows: Sequence[dict[str, Any]]
    first: int = 0

    @property
    def key(self) -> str:
        """Idempotency key of the batch: the key of its first row. A repeated delivery has the same key."""
        return f"{self.query}/{self.run}/{self.first}"

    def keyed_rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each row with its idempotency key, `<query>/<run>/<row number>`."""
        for number, row in enumerate(self.rows, self.first):
            yield f"{self.query}/{self.run}/{number}", row

    def parts(self, most_rows: int) -> Iterator[ResultBatch]:
        """Yield batches of at most so many rows. The same rows always make the same batches."""
        for start in range(0, len(self.rows), most_rows):
            yield ResultBatch(
                query=self.query,
                run=self.run,
                instant=self.instant,
                rows=self.rows[start : start + most_rows],
                first=self.first + start,
            )


def moment(instant: int) -> str:
    """Return an instant as text: ISO 8601 in UTC, with microseconds."""
    return _moment(datetime_of(instant))


def to_json(value: Any) -> str:
    """Return values of rows as JSON on one line.

    Times become ISO 8601 in UTC, decimals become texts, bytes become base64, and floats outside JSON become null.
    """
    try:
        return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), default=_plain, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return _moment(value if value.tzinfo else value.replace(tzinfo=UTC))
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return str(value)


def _moment(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))) else value
