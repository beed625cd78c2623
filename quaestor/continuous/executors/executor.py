"""Seam between continuous queries and the engines that execute them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from sqlglot import exp

from quaestor.errors import DependencyError


class ExecutionError(DependencyError):
    """Failure of a query in the engine: a value that does not fit, or no memory."""


class Executor(Protocol):
    """Engine that evaluates an expression of a compiled query. Results of all engines are equal, except in order."""

    def rows(self, expression: exp.Query, tau: int | None, t: int, snapshots: Mapping[str, Any]) -> Any:
        """Return the rows of an expression as a `pyarrow.Table`.

        tau: instant of the run before, in microseconds; None: no run yet.
        t: instant of this run, in microseconds.
        snapshots: of each table by name, its rows as a `pyarrow.Table` with the column `ts`, or as StoredRows; rows later than
            t do not matter.

        Raises ExecutionError.
        """
        ...

    def close(self) -> None:
        """Free what the engine holds."""
        ...
