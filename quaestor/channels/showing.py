"""SHOW, DESCRIBE and EXPLAIN."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from quaestor.channels.answers import Answer, lines, properties, table_of
from quaestor.channels.datasets import Dataset, dataset_names
from quaestor.channels.definitions import Definition, State
from quaestor.channels.locating import located
from quaestor.channels.parts import StatementParts
from quaestor.channels.rewriting.compilation import CompiledChannel, compile_channel, compile_ordinary
from quaestor.channels.rewriting.joining import SUBSCRIPTIONS
from quaestor.channels.runs.results import Results
from quaestor.channels.statements.model import CreateChannel, CreateProcedure, Describe, Explain, Kind, Query, Show
from quaestor.channels.subscriptions import Subscriptions, dataset_name
from quaestor.continuous.delivery.batch import moment
from quaestor.errors import ConfigurationError

SHOWN = (
    "brokers",
    "channels",
    "datasets",
    "feeds",
    "functions",
    "procedures",
    "runs",
    "sharing",
    "subscriptions",
    "types",
)
"""Nouns of SHOW."""
_NAMED = {"types": Kind.TYPE, "functions": Kind.FUNCTION}


class Showing:
    """Answers of SHOW, DESCRIBE and EXPLAIN."""

    def __init__(self, parts: StatementParts) -> None:
        self._parts = parts

    def answer(self, statement: Show | Describe | Explain, user: str) -> Answer:
        """Return the answer. Raises StatementError, ConfigurationError, DependencyError.

        user: sees his own subscriptions only; the operator sees all.
        """
        match statement:
            case Show(what=what, channel=channel):
                return self._show(what, channel, user)
            case Describe(name=name, kind=kind):
                return self._describe(name, kind)
            case _:
                return self._explain(statement)

    def _show(self, what: str, channel: str | None, user: str) -> Answer:
        definitions = self._parts.definitions
        match what:
            case "datasets":
                return table_of(self._datasets(), ("name", "active", "partitions", "columns", "owner"))
            case "channels":
                entries = map(_channel, definitions.all(Kind.CHANNEL))
                return table_of(entries, ("name", "kind", "period_s", "priority", "push", "state", "owner"))
            case "brokers":
                return table_of(self._entries(Kind.BROKER), ("name", "url", "kind", "state", "owner"))
            case "feeds":
                return table_of(self._entries(Kind.FEED), ("name", "type", "state", "dataset", "mode", "owner"))
            case "subscriptions":
                columns = ("channel", "id", "broker", "parameters", "user", "paused")
                return table_of(self._subscriptions(channel, user), columns)
            case "runs":
                return table_of(self._runs(channel), ("channel", "newest run", "results"))
            case "procedures":
                procedures = map(self._procedure, definitions.all(Kind.PROCEDURE))
                return table_of(procedures, ("name", "text", "owner", "period_s", "state", "executed", "next", "error"))
            case "sharing":
                return lines("sharing", self._sharing())
            case _:
                named = ({"name": d.name, "text": d.text, "owner": d.user} for d in definitions.all(_NAMED[what]))
                return table_of(named, ("name", "text", "owner"))

    def _datasets(self) -> Iterator[Mapping[str, Any]]:
        for name in sorted(set(dataset_names(self._parts.catalogue)) - self._parts.definitions.subscription_datasets()):
            dataset = Dataset.open(self._parts.catalogue, name)
            definition = self._parts.definitions.find(Kind.DATASET, name)
            yield {
                "name": name,
                "active": dataset.active,
                "partitions": len(dataset.partitions),
                "columns": ", ".join(dataset.schema.names),
                "owner": definition.user if definition else "",
            }

    def _entries(self, kind: Kind) -> Iterator[Mapping[str, Any]]:
        registry = self._parts.brokers if kind is Kind.BROKER else self._parts.feeds
        for definition in self._parts.definitions.all(kind):
            if definition.state in (State.READY, State.PAUSED):
                yield registry.get(definition.name).described()

    def _channels(self, name: str | None) -> list[Definition]:
        definitions = self._parts.definitions
        if name is not None:
            return [definitions.get(Kind.CHANNEL, name)]
        return [entry for entry in definitions.all(Kind.CHANNEL) if entry.state in (State.READY, State.PAUSED)]

    def _subscriptions(self, name: str | None, user: str) -> Iterator[Mapping[str, Any]]:
        for definition in self._channels(name):
            parameters = self._parts.compiled(definition).parameters
            for entry in Subscriptions(self._parts.catalogue, definition.name, parameters).all():
                if user in ("", entry.user):
                    yield {
                        "channel": definition.name,
                        "id": entry.id,
                        "broker": entry.broker,
                        "parameters": list(entry.parameters),
                        "user": entry.user,
                        "paused": entry.paused,
                    }

    def _runs(self, name: str | None) -> Iterator[Mapping[str, Any]]:
        for definition in self._channels(name):
            results = Results(self._parts.catalogue, definition.name)
            snapshot = results.table.snapshot()
            run = results.progress(snapshot).run
            yield {
                "channel": definition.name,
                "newest run": None if run is None else moment(run),
                "results": sum(file.rows for file in snapshot.files.values()),
            }

    def _procedure(self, definition: Definition) -> dict[str, Any]:
        """Return a procedure with its period, and with its newest and its next execution if EXECUTE has begun them."""
        statement = definition.statement
        assert isinstance(statement, CreateProcedure)
        described: dict[str, Any] = {"name": definition.name, "text": definition.text, "owner": definition.user}
        if statement.period_us is None:
            return described | {"state": "executed by EXECUTE"}
        described |= {"period_s": statement.period_us / 1_000_000, "state": "waits for EXECUTE"}
        repeated = self._parts.procedures.find(definition.name)
        if repeated is None or repeated.created != definition.created:
            return described
        is_paused = definition.state is State.PAUSED
        return described | {
            "state": "paused" if is_paused else "repeated",
            "executed": None if repeated.executed is None else moment(repeated.executed),
            "next": None if is_paused else moment(repeated.due),
            "error": repeated.error,
        }

    def _sharing(self) -> Iterator[str]:
        """Yield a sentence for each relation that channels of one period read together, and for each join that they share."""
        readers: dict[tuple[float, str, tuple[str, ...], str], list[str]] = {}
        joining: dict[tuple[float, str, str], list[str]] = {}
        for definition in self._channels(None):
            compiled, period_s = self._parts.compiled(definition), _channel(definition)["period_s"]
            for relation in () if compiled.definition.every_instant else compiled.relations:
                kind = "new records" if relation.new_only else "state"
                key = period_s, relation.dataset, relation.columns.names, kind
                readers.setdefault(key, []).append(definition.name)
            for join in compiled.joins:
                joining.setdefault((period_s, join.title, join.key), []).append(definition.name)
        for (period_s, dataset, columns, kind), names in sorted(readers.items()):
            if len(names) > 1:
                yield f"{kind} of {dataset} ({', '.join(columns)}) every {period_s:g} s: read once for {', '.join(names)}"
        for (period_s, title, _), names in sorted(joining.items()):
            if len(set(names)) > 1:
                yield f"{title} every {period_s:g} s: executed once for {', '.join(dict.fromkeys(names))}"

    def _describe(self, name: str, kind: Kind | None) -> Answer:
        definitions = self._parts.definitions.named(name)
        definition = next((entry for entry in definitions if kind in (None, entry.kind)), None)
        if definition is None:
            if kind in (None, Kind.DATASET) and name in dataset_names(self._parts.catalogue):
                return _columns(Dataset.open(self._parts.catalogue, name))
            raise ConfigurationError(f"there is no {kind or 'thing'} {name!r}")
        if definition.kind is Kind.DATASET:
            return _columns(Dataset.open(self._parts.catalogue, definition.name))
        record: dict[str, Any] = {"kind": definition.kind.value, "name": definition.name, "text": definition.text}
        record |= {"state": definition.state.value, "owner": definition.user, "created": moment(definition.created)}
        record |= {"uses": list(definition.uses)}
        users = self._parts.definitions.users_of(definition.kind, definition.name)
        record |= {"used by": [user.key for user in users]}
        if definition.kind is Kind.PROCEDURE:
            record |= self._procedure(definition)
        if definition.kind is Kind.CHANNEL:
            compiled = self._parts.compiled(definition)
            record |= {"parameters": [f"{entry.name} {entry.type}" for entry in compiled.parameters]}
            record |= {"columns": list(compiled.columns)}
        return properties(record)

    def _explain(self, statement: Explain) -> Answer:
        target, shapes = statement.target, self._parts.shapes()
        if isinstance(target, Query):
            with located(target.body):
                explained = self._sentences(compile_ordinary(target.body.text, shapes))
            return lines("plan", [*explained, *(self._measured(target) if statement.analyze else ())])
        if statement.analyze:
            raise ConfigurationError("ANALYZE executes a query: write EXPLAIN ANALYZE SELECT ...")
        if isinstance(target, str):
            return lines(
                "plan", self._sentences(self._parts.compiled(self._parts.definitions.get(Kind.CHANNEL, target)))
            )
        definition = self._parts.definitions.channel_of(target)
        with located(target.body):
            return lines("plan", self._sentences(compile_channel(definition, shapes)))

    def _sentences(self, compiled: CompiledChannel) -> Iterable[str]:
        """Return the choices of a plan for the present sizes: versions count as records, so a size may be too large."""
        catalogue = self._parts.catalogue
        sizes = {relation.name: _rows(Dataset.open(catalogue, relation.dataset)) for relation in compiled.relations}
        name = compiled.definition.name
        if compiled.subscribed and dataset_name(name) in catalogue.names():
            sizes[SUBSCRIPTIONS] = _rows(Dataset.open(catalogue, dataset_name(name)))
        return compiled.explanation(sizes)

    def _measured(self, query: Query) -> Iterator[str]:
        began = time.perf_counter()
        rows = self._parts.analyst.rows(query.body.text)
        yield f"{rows.num_rows} rows in {(time.perf_counter() - began) * 1_000:.0f} ms"


def _channel(definition: Definition) -> Mapping[str, Any]:
    statement = definition.statement
    assert isinstance(statement, CreateChannel)
    return {
        "name": definition.name,
        "kind": "continuous" if statement.using is None else "repetitive",
        "period_s": statement.period_us / 1_000_000,
        "priority": statement.priority.value,
        "push": statement.push,
        "state": definition.state.value,
        "owner": definition.user,
    }


def _columns(dataset: Dataset) -> Answer:
    schema = dataset.schema
    records = ({"column": c.name, "type": c.type.value, "key": c.name in schema.key} for c in schema.columns)
    return table_of(records, ("column", "type", "key"))


def _rows(dataset: Dataset) -> int:
    return sum(file.rows for snapshot in dataset.snapshots() for file in snapshot.files.values())
