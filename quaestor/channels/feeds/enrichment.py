"""Enrichment: a Python function on each record, in a process of its own, within a time limit."""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any, Final

from quaestor.errors import ConfigurationError

_REFERENCE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_START_S: Final = 60.0


class PythonEnrichment:
    """Function `module:name` that returns a record for a record.

    limit_s: for one record. A record that takes longer is refused, and its process is killed.

    Use from one thread.
    """

    def __init__(self, reference: str, *, limit_s: float = 5.0) -> None:
        if not _REFERENCE.fullmatch(reference):
            raise ConfigurationError(f"{reference!r} is no function: write module:name")
        _function(reference)
        self._reference = reference
        self._limit_s = limit_s
        self._process: Any = None
        self._pipe: Connection | None = None

    def __call__(self, records: Sequence[dict[str, Any]]) -> list[dict[str, Any] | ValueError]:
        """Return a record or an error for each record."""
        return [self._enriched(record) for record in records]

    def close(self) -> None:
        """End the process of the function."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.join()
            process.close()
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def _enriched(self, record: dict[str, Any]) -> dict[str, Any] | ValueError:
        if self._pipe is None:
            self._start()
        pipe = self._pipe
        if pipe is None:
            return ValueError("its process does not start")
        try:
            pipe.send(record)
            if not pipe.poll(self._limit_s):
                self.close()
                return ValueError(f"no result within {self._limit_s:g} s")
            result: Any = pipe.recv()
        except (EOFError, OSError):
            self.close()
            return ValueError("its process has ended")
        if isinstance(result, str):
            return ValueError(result)
        return result if isinstance(result, dict) else ValueError(f"a {type(result).__name__} is no record")

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._reference, other), daemon=True)
        self._process.start()
        other.close()
        try:
            ready = self._pipe.poll(_START_S) and self._pipe.recv()
        except EOFError:
            ready = False
        if not ready:
            self.close()


def _function(reference: str) -> Any:
    module, _, name = reference.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"there is no function {reference!r}: {error}") from error


def _serve(reference: str, pipe: Connection) -> None:
    """Apply the function to records until the other side leaves."""
    function = _function(reference)
    pipe.send(True)
    while True:
        try:
            record = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(function(record))
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {error}")
