"""Writing of statements: the text of a statement, which `parse` reads as an equal statement."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from quaestor.channels.statements.durations import duration_text
from quaestor.channels.statements.model import (
    AlterChannel,
    Balance,
    ChangeSubscription,
    ConnectFeed,
    CreateBroker,
    CreateChannel,
    CreateDataset,
    CreateFeed,
    CreateFunction,
    CreateProcedure,
    CreateType,
    Describe,
    Drop,
    Ending,
    Execute,
    Explain,
    Kind,
    MoveSubscriptions,
    Parameter,
    Pause,
    Priority,
    Query,
    Resume,
    Show,
    StartFeed,
    Statement,
    StopFeed,
    Subscribe,
    Unsubscribe,
    Value,
)
from quaestor.channels.statements.types import NAMES
from quaestor.channels.statements.values import quoted, value_text
from quaestor.tables.schema import Schema


def written(statement: Statement) -> str:
    """Return the text of a statement, without a semicolon."""
    match statement:
        case CreateType(name=name, columns=columns, closed=closed, ending=ending):
            return _words(
                "CREATE", _replace(ending), "TYPE", name, _keep(ending), "AS", _closed(closed), _columns(columns)
            )
        case CreateDataset():
            return _dataset(statement)
        case CreateFeed(name=name, options=options, ending=ending):
            return _words("CREATE", _replace(ending), "FEED", name, _keep(ending), _options(options))
        case CreateFunction():
            body = f"PYTHON {quoted(statement.body.text)}" if statement.python else statement.body.text
            return _words(_create(statement, "FUNCTION"), "AS", body)
        case CreateChannel():
            return _channel(statement)
        case CreateBroker(name=name, url=url, options=options, ending=ending):
            end = _options(options) if options else ""
            return _words("CREATE", _replace(ending), "BROKER", name, _keep(ending), "AT", quoted(url), end)
        case CreateProcedure(body=body, period_us=period_us):
            period = "" if period_us is None else _period(period_us)
            return _words(_create(statement, "PROCEDURE"), f"{{ {body.text}\n}}", period)
        case Query(body=body):
            return body.text
        case Explain(target=target, analyze=analyze):
            what = f"CHANNEL {target}" if isinstance(target, str) else written(target)
            return _words("EXPLAIN", "ANALYZE" if analyze else "", what)
        case _:
            return _command(statement)


def _command(statement: Statement) -> str:
    match statement:
        case ConnectFeed(feed=feed, dataset=dataset, function=function, mode=mode):
            apply = f"APPLY FUNCTION {function}" if function else ""
            return _words("CONNECT FEED", feed, "TO DATASET", dataset, apply, f"AS {mode.upper()}" if mode else "")
        case StartFeed(feed=feed):
            return f"START FEED {feed}"
        case StopFeed(feed=feed):
            return f"STOP FEED {feed}"
        case Subscribe(channel=channel, values=values, broker=broker, brokers=brokers, returning=returning):
            end = f"RETURNING {returning}" if returning else ""
            place = f"ON {broker}" if broker else f"AMONG {', '.join(brokers)}"
            return _words("SUBSCRIBE TO", channel, _values(values), place, end)
        case Unsubscribe(subscription=subscription, channel=channel):
            return f"UNSUBSCRIBE {value_text(subscription)} FROM {channel}"
        case ChangeSubscription(subscription=subscription, channel=channel, values=given, broker=to):
            wanted = "" if given is None else _values(given)
            return _words(
                "CHANGE SUBSCRIPTION", value_text(subscription), "ON", channel, wanted, f"TO {to}" if to else ""
            )
        case MoveSubscriptions(source=source, target=target, channel=of_channel):
            return _words("CHANGE SUBSCRIPTIONS ON", source, f"OF {of_channel}" if of_channel else "", "TO", target)
        case Balance(channel=channel, brokers=brokers):
            return _words("BALANCE CHANNEL", channel, f"AMONG {', '.join(brokers)}" if brokers else "")
        case Pause(kind=kind, name=name, subscription=subscription):
            return f"PAUSE {_pausable(kind, name, subscription)}"
        case Resume(kind=kind, name=name, subscription=subscription):
            return f"RESUME {_pausable(kind, name, subscription)}"
        case AlterChannel(channel=channel, period_us=period_us, priority=priority):
            return _words(f"ALTER CHANNEL {channel} SET", _period(period_us) if period_us else _priority(priority))
        case Execute(procedure=procedure, values=values):
            return f"EXECUTE {procedure} {_values(values)}"
        case Drop(kind=kind, name=name, missing_ok=missing_ok):
            return _words("DROP", kind.upper(), name, "IF EXISTS" if missing_ok else "")
        case Show(what=what, channel=channel):
            return _words("SHOW", what.upper(), f"OF {channel}" if channel else "")
        case Describe(name=name, kind=wanted_kind):
            return _words("DESCRIBE", wanted_kind.upper() if wanted_kind else "", name)
        case _:
            raise TypeError(f"{type(statement).__name__} has no text")


def _dataset(statement: CreateDataset) -> str:
    columns = statement.columns
    return _words(
        "CREATE",
        "ACTIVE" if statement.active else "",
        "DATASET",
        statement.name,
        f"({columns})" if isinstance(columns, str) else _columns(columns),
        _closed(statement.closed),
        _keep(statement.ending),
        f"PRIMARY KEY {', '.join(statement.key)}",
        f"PARTITIONS {statement.partitions}" if statement.partitions != 1 else "",
        f"RETAIN {duration_text(statement.retain_us)}" if statement.retain_us is not None else "",
    )


def _channel(statement: CreateChannel) -> str:
    using = statement.using
    start = statement.start.upper() if statement.start in ("now", "beginning") else quoted(statement.start)
    return _words(
        "CREATE",
        _replace(statement.ending),
        "CONTINUOUS" if using is None else "REPETITIVE",
        "PUSH" if statement.push else "",
        "CHANNEL",
        statement.name,
        _parameters(statement.parameters) if using is None else "",
        _keep(statement.ending),
        "" if using is None else f"USING {using.function}@{using.arity}",
        _period(statement.period_us),
        "" if statement.start == "now" else f"FROM {start}",
        "DISTINCT" if statement.distinct else "",
        "EVERY INSTANT" if statement.every_instant else "",
        "" if statement.grouped else "UNGROUPED",
        "" if statement.priority is Priority.NORMAL else _priority(statement.priority),
        # On a line of its own: the query may end with a comment.
        "" if statement.body is None else f"{{ {statement.body.text}\n}}",
    )


def _create(statement: CreateFunction | CreateProcedure, what: str) -> str:
    ending = statement.ending
    return _words("CREATE", _replace(ending), what, statement.name, _parameters(statement.parameters), _keep(ending))


def _words(*words: str) -> str:
    return " ".join(word for word in words if word)


def _replace(ending: Ending) -> str:
    return "OR REPLACE" if ending is Ending.REPLACE else ""


def _priority(priority: Priority | None) -> str:
    return "" if priority is None else f"PRIORITY {priority.upper()}"


def _keep(ending: Ending) -> str:
    return "IF NOT EXISTS" if ending is Ending.KEEP else ""


def _closed(closed: bool) -> str:
    return "CLOSED" if closed else ""


def _columns(schema: Schema) -> str:
    return f"({', '.join(f'{column.name} {NAMES[column.type][0]}' for column in schema.columns)})"


def _parameters(parameters: Iterable[Parameter]) -> str:
    return f"({', '.join(_words(entry.name, NAMES[entry.type][0] if entry.type else '') for entry in parameters)})"


def _values(values: Iterable[Value]) -> str:
    return f"({', '.join(map(value_text, values))})"


def _options(options: Any) -> str:
    return f"WITH {json.dumps(options)}"


def _period(period_us: int) -> str:
    return f"PERIOD {duration_text(period_us)}"


def _pausable(kind: Kind, name: str, subscription: Value) -> str:
    if kind is Kind.SUBSCRIPTION:
        return f"SUBSCRIPTION {value_text(subscription)} ON {name}"
    return f"{kind.upper()} {name}"
