"""Creation of the named things of statements: the definition first, then the tables behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from quaestor.channels.answers import Answer
from quaestor.channels.datasets import Dataset
from quaestor.channels.definitions import Definition, NameTakenError, State
from quaestor.channels.feeds.dead_letters import LETTERS
from quaestor.channels.locating import located
from quaestor.channels.parts import StatementParts
from quaestor.channels.rewriting.compilation import compile_channel, compile_ordinary
from quaestor.channels.runs.results import table_name
from quaestor.channels.runs.run import create_tables
from quaestor.channels.statements import Statement, written
from quaestor.channels.statements.model import (
    CreateBroker,
    CreateChannel,
    CreateDataset,
    CreateFeed,
    CreateFunction,
    CreateProcedure,
    CreateType,
    Ending,
    Kind,
)
from quaestor.channels.subscriptions import dataset_name
from quaestor.channels.uses import uses_of
from quaestor.errors import ConfigurationError, QuaestorError
from quaestor.tables.schema import Schema

KINDS: dict[type[Statement], Kind] = {
    CreateType: Kind.TYPE,
    CreateDataset: Kind.DATASET,
    CreateFeed: Kind.FEED,
    CreateFunction: Kind.FUNCTION,
    CreateChannel: Kind.CHANNEL,
    CreateBroker: Kind.BROKER,
    CreateProcedure: Kind.PROCEDURE,
}


class Creation:
    """Creation of named things."""

    def __init__(self, parts: StatementParts) -> None:
        self._parts = parts

    def answer(self, statement: Any, user: str, may_replace: Callable[[Kind, str], None]) -> Answer:
        """Execute a CREATE statement. Raises StatementError, ConfigurationError, DependencyError.

        may_replace: raises ConfigurationError unless the user may replace a thing.
        """
        kind, name, ending = KINDS[type(statement)], statement.name, statement.ending
        if ending is Ending.REPLACE:
            may_replace(kind, name)
        if ending is Ending.KEEP and self._parts.definitions.find(kind, name) is not None:
            return Answer(f"{kind} {name} exists")
        self._check(statement)
        definition = Definition(
            kind=kind,
            name=name,
            text=self._text(statement),
            user=user,
            uses=uses_of(statement, self._parts.definitions),
        )
        try:
            remark = self._create(statement, definition)
        except NameTakenError:
            if ending is not Ending.KEEP:
                raise
            return Answer(f"{kind} {name} exists")
        return Answer(f"created {kind} {name}{remark}")

    def drop_dataset(self, name: str) -> None:
        """Delete the tables of a dataset. Raises ConfigurationError if there are none."""
        Dataset.drop(self._parts.catalogue, name)

    def drop_channel(self, name: str) -> None:
        """Delete the tables of a channel, also if a process that was killed has deleted one of them."""
        for table in (table_name(name), dataset_name(name)):
            if table in self._parts.catalogue.names():
                self._parts.catalogue.drop(table)

    def _text(self, statement: Any) -> str:
        if isinstance(statement, CreateBroker | CreateFeed):
            # Options may hold keys: the registry keeps them, and the definition does not show them.
            return written(replace(statement, options={}))
        return written(statement)

    def _create(self, statement: Any, definition: Definition) -> str:
        """Create a thing; return what its owner has to know besides."""
        replaces = statement.ending is Ending.REPLACE
        match statement:
            case CreateDataset():
                if statement.name.lower().endswith(LETTERS):
                    raise ConfigurationError(f"dataset {statement.name!r}: names that end in {LETTERS} belong to feeds")
                schema = self._schema(statement)
                with self._making(definition):
                    Dataset.create(
                        self._parts.catalogue,
                        statement.name,
                        schema,
                        active=statement.active,
                        partitions=statement.partitions,
                        extensible=not self._is_closed(statement),
                    )
            case CreateChannel():
                self._create_channel(statement, definition)
            case CreateBroker(name=name, url=url, options=options):
                with self._making(definition, keep=replaces):
                    registered = self._parts.brokers.register(
                        name, url, options=options, owner=definition.user, replaces=replaces
                    )
                return "" if options.get("key") else f" with the key {registered.key}"
            case CreateFeed(name=name, options=options):
                with self._making(definition, keep=replaces):
                    self._parts.feeds.create(name, options, owner=definition.user, replaces=replaces)
            case _ if replaces:
                self._parts.definitions.replace(definition)
                if definition.kind is Kind.PROCEDURE:
                    self._parts.procedures.end(definition.name)
            case _:
                self._parts.definitions.create(definition)
        return ""

    def _create_channel(self, statement: CreateChannel, definition: Definition) -> None:
        definitions, catalogue = self._parts.definitions, self._parts.catalogue
        taken = definitions.find(Kind.DATASET, dataset_name(statement.name))
        if taken is not None:  # its table may differ in upper and lower case, and queries could read either
            raise ConfigurationError(
                f"channel {statement.name!r}: dataset {taken.name!r} has the name of its subscriptions: drop it first"
            )
        compiled = self._compiled(statement)
        if statement.ending is Ending.REPLACE and definitions.find(Kind.CHANNEL, statement.name) is not None:
            if self._parts.counts.any(statement.name):
                raise ConfigurationError(f"channel {statement.name!r} has subscriptions: drop it first")
            dropped = definitions.begin_drop(Kind.CHANNEL, statement.name)
            self.drop_channel(dropped.name)
            definitions.end_drop(dropped)
        with self._making(definition):
            create_tables(catalogue, compiled)

    def _compiled(self, statement: CreateChannel) -> Any:
        definition = self._parts.definitions.channel_of(statement)
        with located(statement.body):
            return compile_channel(definition, self._parts.shapes())

    @contextmanager
    def _making(self, definition: Definition, *, keep: bool = False) -> Iterator[None]:
        """Publish a definition around the making of what stands behind it; take it back if that fails.

        keep: whether the thing may be there already.
        """
        definitions = self._parts.definitions
        if keep and definitions.find(definition.kind, definition.name) is not None:
            yield
            definitions.change(definition.kind, definition.name, lambda present: replace(present, text=definition.text))
            return
        creating = definitions.create(replace(definition, state=State.CREATING))
        try:
            yield
        except QuaestorError:
            with suppress(ConfigurationError):
                definitions.end_drop(definitions.begin_drop(creating.kind, creating.name))
            raise
        definitions.ready(creating)

    def _check(self, statement: Any) -> None:
        match statement:
            case CreateFunction(python=True, body=body):
                module = body.text.partition(":")[0]
                if module not in self._parts.python_modules:
                    allowed = ", ".join(self._parts.python_modules) or "none"
                    raise ConfigurationError(f"functions of module {module!r} are not allowed; allowed are {allowed}")
            case CreateFunction(parameters=(), body=body):
                with located(body):
                    compile_ordinary(body.text, self._parts.shapes())
            case _:
                return

    def _schema(self, statement: CreateDataset) -> Schema:
        columns = self._type_of(statement).columns if isinstance(statement.columns, str) else statement.columns
        return Schema(columns.columns, statement.key)

    def _is_closed(self, statement: CreateDataset) -> bool:
        return statement.closed or (isinstance(statement.columns, str) and self._type_of(statement).closed)

    def _type_of(self, statement: CreateDataset) -> CreateType:
        assert isinstance(statement.columns, str)
        kind = self._parts.definitions.get(Kind.TYPE, statement.columns).statement
        assert isinstance(kind, CreateType)
        return kind
