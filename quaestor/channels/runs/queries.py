"""Queries of analysts over datasets: ordinary SQL on the present records, hidden columns left out."""

from __future__ import annotations

from typing import Any

from quaestor.channels.datasets import Dataset, dataset_names
from quaestor.channels.rewriting.compilation import compile_ordinary
from quaestor.channels.rewriting.definition import Shape
from quaestor.channels.runs.relations import Relations
from quaestor.clock import Clock, system_clock
from quaestor.continuous.executors.executor import Executor
from quaestor.tables.catalogue import Catalogue


class Queries:
    """Queries over the datasets of a catalogue. Use from one thread at a time."""

    def __init__(self, catalogue: Catalogue, executor: Executor, *, clock: Clock = system_clock) -> None:
        self._catalogue = catalogue
        self._executor = executor
        self._clock = clock
        self._relations = Relations(catalogue)

    def rows(self, text: str) -> Any:
        """Return the result of a SELECT as an Arrow table. Raises QueryRefusedError, DependencyError.

        Every record is new to a query: the previous time is before 1970, and the current time is now.
        """
        compiled = compile_ordinary(text, shapes(self._catalogue))
        tables = self._relations.present(compiled.relations)
        plan = compiled.plan({name: table.num_rows for name, table in tables.items()})
        return self._executor.rows(plan.expression, None, self._clock() * 1_000, tables)


def shapes(catalogue: Catalogue) -> dict[str, Shape]:
    """Return the shapes of all datasets, by name. Raises DependencyError."""
    opened = ((name, Dataset.open(catalogue, name)) for name in dataset_names(catalogue))
    return {name: Shape(dataset.schema, dataset.active) for name, dataset in opened}
