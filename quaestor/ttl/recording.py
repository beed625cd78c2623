"""Recording of a trace: the observations of an estimator, and the hits of what it kept, written to a file.

The recorder stands before the estimator, so the read path and the effects know nothing of it; hits are counted as they are
anyway, and fetched once a second. Nobody can tell queries from the trace: they are hashed with a key that is made for it and
thrown away. A share of the results is recorded whole, the others not at all, so the recorded rates are true.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final

from quaestor.errors import ConfigurationError
from quaestor.event_layer.partitioning import query_hash
from quaestor.ports import LifetimeEstimator
from quaestor.ttl import trace_format
from quaestor.ttl.trace_format import Changed, Filled, Record, Served, Withdrawn

MOST_QUERIES: Final = 100_000
"""Queries in the trace at a time; of the one read longest ago nothing more is recorded."""
MOST_WAITING: Final = 100_000
"""Lines that wait to be written; what is more than that is not recorded, and the trace ends there."""
_DIGITS: Final = 16


class TraceRecorder:
    """Recorder of one process; implements LifetimeEstimator. Its observations come from one event loop; write() from any
    thread, one call at a time.

    inner: the estimator that answers, and that receives every observation.
    path: of the file; one that is there already is replaced.
    share: of the results (0..1, exclusive of 0).
    max_bytes: the file ends when it has reached this.
    """

    def __init__(self, inner: LifetimeEstimator, *, path: Path, share: float, max_bytes: int, started_ms: int) -> None:
        if not 0 < share <= 1 or max_bytes < 1_000:
            raise ConfigurationError(
                f"share ({share}) must lie in 0..1, above 0, and max_bytes ({max_bytes}) be at least 1000"
            )
        self.inner = inner
        self._path = path
        self._share = share
        self._max_bytes = max_bytes
        self._started_ms = started_ms
        self._secret = secrets.token_bytes(32)
        self._names: OrderedDict[str, str] = OrderedDict()
        self._waiting: list[Record] = []
        self._overrun = self._full = self._ended = False
        self._lines = self._bytes = 0

    def estimate_ms(self, query_ids: Sequence[str], *, write_rate_hz: float, now_ms: int, kind: str = "") -> int:
        """See LifetimeEstimator."""
        return self.inner.estimate_ms(query_ids, write_rate_hz=write_rate_hz, now_ms=now_ms, kind=kind)

    def observe_read(
        self,
        query_ids: Sequence[str],
        *,
        now_ms: int,
        ttl_ms: int | None = None,
        given_ms: int | None = None,
        write_rate_hz: float = 0.0,
        kind: str = "",
    ) -> None:
        """See LifetimeEstimator."""
        self.inner.observe_read(
            query_ids, now_ms=now_ms, ttl_ms=ttl_ms, given_ms=given_ms, write_rate_hz=write_rate_hz, kind=kind
        )
        result, queries = self._result([f"{query_hash(query_id):0{_DIGITS}x}" for query_id in query_ids])
        if result is not None:
            for query_id, query in zip(dict.fromkeys(query_ids), queries, strict=False):
                self._names[query_id] = query
                self._names.move_to_end(query_id)
            while len(self._names) > MOST_QUERIES:
                self._names.popitem(last=False)
            self._note(Filled(now_ms - self._started_ms, result, queries, given_ms, ttl_ms, write_rate_hz, kind))

    def observe_invalidation(self, query_id: str, *, now_ms: int) -> None:
        """See LifetimeEstimator."""
        self.inner.observe_invalidation(query_id, now_ms=now_ms)
        name = self._names.get(query_id)
        if name is not None:
            self._note(Changed(now_ms - self._started_ms, name))

    def observe_withdrawal(self, query_id: str, *, now_ms: int) -> None:
        """See LifetimeEstimator."""
        self.inner.observe_withdrawal(query_id, now_ms=now_ms)
        name = self._names.get(query_id)
        if name is not None:
            self._note(Withdrawn(now_ms - self._started_ms, name))

    def served(self, served: Iterable[tuple[tuple[str, ...], int]], *, now_ms: int) -> None:
        """Note what was served from memory since the last call.

        served: registrations of each entry, and how often it was.
        """
        for registrations, times in served:
            hashes = [registration.rpartition("#")[2] for registration in registrations]
            result, _ = self._result(hashes)
            if result is not None and times:
                self._note(Served(now_ms - self._started_ms, result, times))

    def write(self) -> None:
        """Write what waits. Raises OSError."""
        waiting, self._waiting = self._waiting, []
        text = "".join(self._lines_of(waiting))
        if text:
            with self._path.open("a" if self._bytes else "w", encoding="utf-8") as file:
                file.write(text)
            self._bytes += len(text)
        if self._ended:
            self._waiting = []

    def end(self) -> None:
        """Write what waits, and the last line. Raises OSError."""
        self.write()
        if not self._ended:
            self._ended = True
            with self._path.open("a" if self._bytes else "w", encoding="utf-8") as file:
                if not self._lines:
                    file.write(trace_format.header(started_ms=self._started_ms, share=self._share))
                    self._lines = 1
                file.write(trace_format.end(self._lines, full=self._full))

    def _lines_of(self, waiting: Sequence[Record]) -> Iterable[str]:
        size = self._bytes
        if not self._lines and not self._ended:
            yield trace_format.header(started_ms=self._started_ms, share=self._share)
            self._lines = 1
        for record in waiting:
            if self._ended:
                return
            text = trace_format.line(record)
            size += len(text)
            if size > self._max_bytes:
                self._full = self._ended = True
                yield trace_format.end(self._lines, full=True)
                return
            self._lines += 1
            yield text
        if self._overrun and not self._ended:
            self._full = self._ended = True
            yield trace_format.end(self._lines, full=True)

    def _note(self, record: Record) -> None:
        if self._overrun or self._ended:
            return
        self._waiting.append(record)
        self._overrun = len(self._waiting) >= MOST_WAITING

    def _result(self, hashes: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
        """Return the trace's key of a result and its queries; None: the result is not recorded."""
        queries = tuple(self._hashed(hashed) for hashed in dict.fromkeys(hashes))
        result = queries[0] if len(queries) == 1 else self._hashed("".join(queries))
        if int(result, 16) >= self._share * 16**_DIGITS:
            return None, queries
        return result, queries

    def _hashed(self, text: str) -> str:
        return blake2b(text.encode(), key=self._secret, digest_size=_DIGITS // 2).hexdigest()
