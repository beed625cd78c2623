"""Dead letters: batches that a sink refused for good, kept until an operator sends them again or drops them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote

from quaestor.continuous.delivery.batch import ResultBatch, to_json
from quaestor.errors import DependencyError
from quaestor.tables.storage import LogStorage

_FOLDER: Final = "dead_letters"
_ASKED: Final = "dead_letters_asked"
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """Batch that was not delivered.

    sink: address of its receiver.
    reason: of the last attempt, one of vocabularies.DELIVERY_FAILURES.
    error: sentence of the last attempt.
    """

    batch: ResultBatch
    sink: str
    reason: str
    error: str
    attempts: int


class DeadLetters:
    """Dead letters in a storage. A letter is durable when `put` returns."""

    def __init__(self, storage: LogStorage) -> None:
        self._storage = storage

    def put(self, letter: DeadLetter) -> None:
        """Keep a letter. The second letter of the same batch and sink changes nothing. Raises DependencyError."""
        self._storage.create_if_absent(_path(letter), _encoded(letter))

    def list(self, query: str | None = None) -> Iterator[DeadLetter]:
        """Yield the letters of a query, or of all queries, in the order of their batches. Raises DependencyError."""
        folder = _FOLDER if query is None else f"{_FOLDER}/{query}"
        for path in sorted(stored.path for stored in self._storage.list(folder)):
            try:
                yield _decoded(self._storage.read(path), path)
            except FileNotFoundError:
                continue  # sent meanwhile

    def ask(self, letter: DeadLetter) -> None:
        """Ask the process that has the letter's receiver to send it again. Raises DependencyError."""
        self._storage.create_if_absent(_asked(letter), b"")

    def asked(self) -> Iterator[DeadLetter]:
        """Yield the letters with a request to send them again. Raises DependencyError."""
        for stored in sorted(self._storage.list(_ASKED), key=lambda request: request.path):
            path = _FOLDER + stored.path.removeprefix(_ASKED)
            try:
                yield _decoded(self._storage.read(path), path)
            except FileNotFoundError:
                self._storage.delete(stored.path)  # sent meanwhile

    def answer(self, letter: DeadLetter) -> None:
        """Forget the request to send a letter again. Raises DependencyError."""
        self._storage.delete(_asked(letter))

    def remove(self, letter: DeadLetter) -> None:
        """Remove a letter. An absent letter is no error. Raises DependencyError."""
        self._storage.delete(_path(letter))

    def drop(self, query: str) -> int:
        """Drop the letters of a query for good; return their number. Raises DependencyError."""
        paths = [stored.path for stored in self._storage.list(f"{_FOLDER}/{quote(query, safe='')}")]
        for path in paths:
            self._storage.delete(path)
        return len(paths)

    def counts(self) -> Counter[str]:
        """Return the number of letters of each query, without reading them. Raises DependencyError."""
        return Counter(unquote(stored.path.split("/")[1]) for stored in self._storage.list(_FOLDER))

    def count(self) -> int:
        """Return the number of letters. Raises DependencyError."""
        return sum(1 for _ in self._storage.list(_FOLDER))


def _path(letter: DeadLetter) -> str:
    batch = letter.batch
    digest = hashlib.sha256(letter.sink.encode()).hexdigest()[:16]
    return f"{_FOLDER}/{quote(batch.query, safe='')}/{batch.run:012d}-{batch.first:012d}-{digest}.json"


def _asked(letter: DeadLetter) -> str:
    return _ASKED + _path(letter).removeprefix(_FOLDER)


def _encoded(letter: DeadLetter) -> bytes:
    batch = letter.batch
    fields = {
        "v": _FORMAT, "query": batch.query, "run": batch.run, "instant": batch.instant, "first": batch.first,
        "rows": list(batch.rows), "sink": letter.sink, "reason": letter.reason, "error": letter.error,
        "attempts": letter.attempts,
    }  # fmt: skip
    return to_json(fields).encode()


def _decoded(content: bytes, path: str) -> DeadLetter:
    try:
        fields: dict[str, Any] = json.loads(content)
        if fields["v"] != _FORMAT:
            raise ValueError(f"format {fields['v']!r}, not {_FORMAT}")
        batch = ResultBatch(
            query=fields["query"],
            run=fields["run"],
            instant=fields["instant"],
            first=fields["first"],
            rows=fields["rows"],
        )
        return DeadLetter(
            batch=batch,
            sink=fields["sink"],
            reason=fields["reason"],
            error=fields["error"],
            attempts=fields["attempts"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DependencyError(f"{path} is damaged: {error}; restore or remove it", retryable=False) from error
