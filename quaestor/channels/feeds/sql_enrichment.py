"""Enrichment by a query: fields of a record are the parameters, and stored data may be joined.

One plan enriches a batch. The datasets are read anew for each batch, and only new files of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from quaestor.channels.records import value_of
from quaestor.channels.rewriting.compilation import CompiledChannel, compile_channel
from quaestor.channels.rewriting.definition import ChannelDefinition, Kind, Parameter
from quaestor.channels.rewriting.joining import SUBSCRIPTIONS, TARGET
from quaestor.channels.rewriting.reading import parameter_column
from quaestor.channels.runs.queries import shapes
from quaestor.channels.runs.relations import Relations
from quaestor.clock import Clock, system_clock
from quaestor.continuous.executors.executor import ExecutionError, Executor
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.files import TS_TYPE
from quaestor.tables.schema import TS, Type
from quaestor.tables.versioned import ARROW


class SqlEnrichment:
    """Function whose parameters are fields of a record, and whose result is one row of further or changed fields.

    body: SELECT.
    parameters: fields of the record; a parameter without a type has the type of the column that the query compares it with.

    A record for which the query has no row, or several, is refused. A missing field is NULL. Use from one thread.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        body: str,
        parameters: Sequence[Parameter],
        executor: Executor,
        *,
        clock: Clock = system_clock,
    ) -> None:
        self._catalogue = catalogue
        self._executor = executor
        self._clock = clock
        self._relations = Relations(catalogue)
        self._definition = ChannelDefinition(
            name="enrichment", body=body, parameters=tuple(parameters), kind=Kind.REPETITIVE
        )
        self._shapes = shapes(catalogue)
        self._compiled = compile_channel(self._definition, self._shapes)

    def __call__(self, records: Sequence[dict[str, Any]]) -> list[dict[str, Any] | ValueError]:
        """Return a record or an error for each record. Raises DependencyError, QueryRefusedError if a dataset is gone."""
        compiled = self._compile()
        results: list[dict[str, Any] | ValueError] = []
        arguments: dict[int, list[Any]] = {}
        for number, record in enumerate(records):
            try:
                arguments[number] = [value_of(record, entry.name, entry.type) for entry in compiled.parameters]
            except ValueError as error:
                results.append(error)
            else:
                results.append(ValueError("the query has no row for the record"))
        for number, result in self._rows(compiled, arguments).items():
            results[number] = result if isinstance(result, ValueError) else {**records[number], **result}
        return results

    def close(self) -> None:
        """Free the engine."""
        self._executor.close()

    def _compile(self) -> CompiledChannel:
        """Return the compiled query; compiled again after a change of the datasets."""
        present = shapes(self._catalogue)
        if present != self._shapes:
            self._compiled, self._shapes = compile_channel(self._definition, present), present
        return self._compiled

    def _rows(
        self, compiled: CompiledChannel, arguments: Mapping[int, list[Any]]
    ) -> dict[int, dict[str, Any] | ValueError]:
        """Return the fields or the error of each record that has a row. A failing record is found by halving the batch."""
        if not arguments:
            return {}
        try:
            rows = self._executed(compiled, arguments)
        except ExecutionError as error:
            if len(arguments) == 1:
                return {next(iter(arguments)): ValueError(str(error))}
            numbers = list(arguments)
            halves = numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]
            parts = [self._rows(compiled, {number: arguments[number] for number in half}) for half in halves]
            return {**parts[0], **parts[1]}
        results: dict[int, dict[str, Any] | ValueError] = {}
        for row in rows.to_pylist():
            number = row.pop(TARGET)
            several = ValueError("the query has several rows for the record")
            results[number] = several if number in results else row
        return results

    def _executed(self, compiled: CompiledChannel, arguments: Mapping[int, list[Any]]) -> Any:
        tables = self._relations.present(compiled.relations)
        columns = {TARGET: pa.array(arguments, pa.int64())}
        for position, entry in enumerate(compiled.parameters):
            values = [row[position] for row in arguments.values()]
            columns[parameter_column(position)] = pa.array(values, ARROW[entry.type or Type.TEXT])
        columns[TS] = pa.repeat(pa.scalar(0, pa.int64()), len(arguments)).cast(TS_TYPE)
        tables[SUBSCRIPTIONS] = pa.table(columns)
        plan = compiled.plan({name: table.num_rows for name, table in tables.items()})
        return self._executor.rows(plan.expression, None, self._clock() * 1_000, tables)
