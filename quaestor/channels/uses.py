"""Uses of statements: the definitions that a statement needs, by key."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from quaestor.channels.definitions import Definitions, key_of
from quaestor.channels.statements import Statement, parse
from quaestor.channels.statements.bodies import query_of
from quaestor.channels.statements.model import (
    AlterChannel,
    Balance,
    Body,
    ChangeSubscription,
    ConnectFeed,
    CreateChannel,
    CreateDataset,
    CreateFunction,
    CreateProcedure,
    Execute,
    Explain,
    Kind,
    MoveSubscriptions,
    Query,
    StartFeed,
    StopFeed,
    Subscribe,
    Unsubscribe,
)
from quaestor.channels.subscriptions import SUBSCRIPTIONS_ENDING
from quaestor.continuous.sql.refusals import place_of
from quaestor.errors import ConfigurationError


def uses_of(statement: Statement, definitions: Definitions) -> tuple[str, ...]:
    """Return the keys of the definitions that a statement needs. Raises StatementError."""
    return tuple(sorted({key_of(kind, name) for kind, name in _uses(statement, definitions)}))


def refuse_subscriptions(statement: Statement, definitions: Definitions) -> None:
    """Refuse a statement of a user that reads subscriptions: they belong to all users.

    Raises StatementError, ConfigurationError if a function reads them that the statement names.
    """
    target = statement.target if isinstance(statement, Explain) else statement
    match target:
        case CreateDataset(name=name) if name.lower().endswith(SUBSCRIPTIONS_ENDING):
            raise ConfigurationError(f"the name {name!r} is kept for the subscriptions of a channel: use another name")
        case CreateFunction(python=True):
            return
        case CreateFunction(body=body) | CreateChannel(body=Body() as body) | Query(body=body):
            for table, reason in _hidden_tables(body, definitions):
                raise body.error(*place_of(table), reason)
        case CreateChannel(using=using) if using is not None:
            _refuse_function(using.function, definitions)
        case ConnectFeed(function=str(function)):
            _refuse_function(function, definitions)


def _refuse_function(name: str, definitions: Definitions) -> None:
    """Refuse a function that reads subscriptions: it may be the operator's, or older than the channel."""
    definition = definitions.find(Kind.FUNCTION, name)
    function = None if definition is None else definition.statement
    if isinstance(function, CreateFunction) and not function.python:
        for table, reason in _hidden_tables(function.body, definitions):
            raise ConfigurationError(f"function {name!r} reads dataset {table.name!r}: {reason}")


def _hidden_tables(body: Body, definitions: Definitions) -> Iterator[tuple[exp.Table, str]]:
    """Yield each table of a query that a user must not read, with the reason. A channel that comes later makes some of them."""
    hidden = {name.lower() for name in definitions.subscription_datasets()}
    for table in query_of(body).find_all(exp.Table):
        name = table.name.lower()
        if name in hidden:
            yield table, f"dataset {table.name!r} holds the subscriptions of all users"
        elif name.endswith(SUBSCRIPTIONS_ENDING) and definitions.find(Kind.DATASET, name) is None:
            yield table, f"the name {table.name!r} is kept for the subscriptions of a channel"


def _uses(statement: Statement, definitions: Definitions) -> Iterator[tuple[Kind, str]]:
    match statement:
        case CreateDataset(columns=str(name)):
            yield Kind.TYPE, name
        case CreateFunction(python=False, body=body) | Query(body=body):
            yield from _datasets(body, definitions)
        case CreateChannel(using=None, body=Body() as body):
            yield from _datasets(body, definitions)
        case CreateChannel(using=using) if using is not None:
            yield Kind.FUNCTION, using.function
        case CreateProcedure(body=body):
            for inner in parse(body.text):
                yield from _uses(inner, definitions)
        case ConnectFeed(feed=feed, dataset=dataset, function=function):
            yield Kind.FEED, feed
            yield Kind.DATASET, dataset
            if function is not None:
                yield Kind.FUNCTION, function
        case StartFeed(feed=feed) | StopFeed(feed=feed):
            yield Kind.FEED, feed
        case Subscribe(channel=channel, broker=broker, brokers=brokers):
            yield Kind.CHANNEL, channel
            yield from ((Kind.BROKER, name) for name in brokers or (broker,))
        case Unsubscribe(channel=channel) | ChangeSubscription(channel=channel) | AlterChannel(channel=channel):
            yield Kind.CHANNEL, channel
        case MoveSubscriptions(source=source, target=target, channel=of_channel):
            yield Kind.BROKER, source
            yield Kind.BROKER, target
            if of_channel is not None:
                yield Kind.CHANNEL, of_channel
        case Balance(channel=channel, brokers=brokers):
            yield Kind.CHANNEL, channel
            yield from ((Kind.BROKER, broker) for broker in brokers)
        case Execute(procedure=procedure):
            yield Kind.PROCEDURE, procedure


def _datasets(body: Body, definitions: Definitions) -> Iterator[tuple[Kind, str]]:
    """Yield the defined datasets among the tables of a query. A table without a definition has no users to count."""
    for table in query_of(body).find_all(exp.Table):
        if definitions.find(Kind.DATASET, table.name) is not None:
            yield Kind.DATASET, table.name
