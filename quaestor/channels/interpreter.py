"""Interpreter of statements: each changes definitions and what stands behind them, or answers with rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from quaestor.channels.answers import Answer
from quaestor.channels.binding import bound_statement, checked_values, statement_value
from quaestor.channels.brokers.balancing import group_loads, load_at, moves, placement
from quaestor.channels.connecting import connect
from quaestor.channels.creating import Creation
from quaestor.channels.datasets import dataset_names
from quaestor.channels.definitions import Definition, Definitions, State
from quaestor.channels.locating import located
from quaestor.channels.parts import StatementParts
from quaestor.channels.procedures import Repeated
from quaestor.channels.registries import BrokerEntry
from quaestor.channels.showing import Showing
from quaestor.channels.statements import Statement, StatementError, parse, written
from quaestor.channels.statements.model import (
    AlterChannel,
    Balance,
    ChangeSubscription,
    ConnectFeed,
    CreateChannel,
    CreateProcedure,
    Describe,
    Drop,
    Execute,
    Explain,
    Kind,
    MoveSubscriptions,
    Pause,
    Query,
    Resume,
    Show,
    StartFeed,
    StopFeed,
    Subscribe,
    Unsubscribe,
)
from quaestor.channels.subscriptions import Subscription, Subscriptions
from quaestor.channels.uses import refuse_subscriptions
from quaestor.continuous.delivery.batch import moment
from quaestor.continuous.executors.executor import ExecutionError
from quaestor.continuous.schedule.periods import Every
from quaestor.errors import ConfigurationError, QueryError

MOST_ROWS: Final = 10_000
"""Rows of an answer."""
_DEEPEST: Final = 8
"""Procedures that execute one another."""


@dataclass(frozen=True, slots=True)
class _Request:
    """Request. depth: number of procedures around it."""

    user: str
    values: Mapping[str, Any]
    depth: int = 0


class Interpreter:
    """Interpreter of the statements of one catalogue. Use from any thread."""

    def __init__(self, parts: StatementParts) -> None:
        self._parts = parts
        self._creation = Creation(parts)
        self._showing = Showing(parts)

    @property
    def definitions(self) -> Definitions:
        """Definitions of the catalogue."""
        return self._parts.definitions

    def run(self, text: str, *, user: str = "", values: Mapping[str, Any] | None = None) -> list[Answer]:
        """Execute statements in order; return an answer for each. A text with a fault executes nothing.

        user: owner of what is created; empty: the operator, who may change everything.
        values: of the names `$name`. A value is never read as text of a statement.

        Raises StatementError, also for a statement that cannot be executed: those before it are done. Raises DependencyError.
        """
        try:
            request = _Request(user, checked_values(values or {}))
        except ValueError as error:
            raise StatementError(1, 1, str(error)) from error
        return [self._executed(statement, request, number) for number, statement in enumerate(parse(text))]

    def execute(self, statement: Statement, *, user: str = "") -> Answer:
        """Execute one statement that a program has built. Raises as `run` does."""
        return self._executed(statement, _Request(user, {}))

    def execute_once(self, statement: Execute, *, user: str = "") -> Answer:
        """Execute a procedure once, as its period does. Raises as `run` does."""
        try:
            return self._executed_once(self._procedure(statement.procedure)[1], statement, _Request(user, {}))
        except (ConfigurationError, QueryError, ValueError) as error:
            raise StatementError(*statement.place, str(error)) from error

    def _executed(self, statement: Statement, request: _Request, before: int = 0) -> Answer:
        done = f" ({before} statements before it are done)" if before else ""
        try:
            return self._answer(bound_statement(statement, request.values), request)
        except StatementError as error:
            if not before:
                raise
            raise StatementError(error.line, error.column, f"{error.reason}{done}", error.expected) from error
        except (ConfigurationError, QueryError, ValueError) as error:
            raise StatementError(*statement.place, f"{error}{done}") from error

    def _answer(self, statement: Statement, request: _Request) -> Answer:
        if request.user:
            refuse_subscriptions(statement, self._parts.definitions)
        match statement:
            case Query():
                return self._query(statement)
            case Subscribe():
                return self._subscribe(statement, request)
            case Unsubscribe(subscription=subscription, channel=channel):
                subscriptions, own = self._own(channel, subscription, request)
                subscriptions.remove(own.id)
                return Answer(f"unsubscribed {own.id}")
            case ChangeSubscription():
                return self._change(statement, request)
            case MoveSubscriptions():
                return self._move(statement, request)
            case Balance():
                return self._balance(statement, request)
            case Pause() | Resume():
                return self._pause(statement, request)
            case AlterChannel():
                return self._alter(statement, request)
            case Drop():
                return self._drop(statement, request)
            case Execute():
                return self._execute(statement, request)
            case ConnectFeed(feed=name, dataset=dataset):
                feed = self._owned(Kind.FEED, name, request)
                self._owned(Kind.DATASET, dataset, request)  # a feed writes over records
                return connect(self._parts, statement, feed)
            case StartFeed(feed=name):
                self._owned(Kind.FEED, name, request)
                self._parts.feeds.start(name)
                return Answer(f"started feed {name}")
            case StopFeed(feed=name):
                self._owned(Kind.FEED, name, request)
                self._parts.feeds.stop(name)
                return Answer(f"stopped feed {name}")
            case Show() | Describe() | Explain():
                return self._showing.answer(statement, request.user)
            case _:
                return self._creation.answer(statement, request.user, self._may_replace(request))

    def _query(self, statement: Query) -> Answer:
        try:
            with located(statement.body):
                rows = self._parts.analyst.rows(statement.body.text)
        except ExecutionError as error:
            raise StatementError(*statement.place, str(error)) from error
        shown = rows.slice(0, MOST_ROWS)
        columns = [column.to_pylist() for column in shown.columns]
        text = f"the first {MOST_ROWS} of {rows.num_rows} rows" if rows.num_rows > MOST_ROWS else ""
        return Answer(text, tuple(rows.schema.names), tuple(zip(*columns, strict=True)))

    def _subscribe(self, statement: Subscribe, request: _Request) -> Answer:
        name = self._parts.open_broker(statement.broker or self._placed(statement))
        subscriptions = self._subscriptions(statement.channel)
        self._parts.counts.check_quota(statement.channel, request.user)
        added = subscriptions.add(name, statement.values, user=request.user)
        if self._parts.is_dropped(name):
            subscriptions.remove(added)
            raise _dropped(name)
        column = statement.returning or "id"
        if statement.broker:
            return Answer(columns=(column,), rows=((added,),))
        return Answer(columns=(column, "broker"), rows=((added, name),))

    def _placed(self, statement: Subscribe) -> str:
        """Return the broker of a new subscription that names several. Raises ConfigurationError."""
        sharing = [broker.name for broker in self._brokers(statement.brokers) if _takes_subscriptions(broker)]
        if not sharing:
            raise ConfigurationError(
                f"none of the brokers {', '.join(statement.brokers)} takes new subscriptions now: each is draining or down"
            )
        channel = self._parts.definitions.get(Kind.CHANNEL, statement.channel).name
        return placement(sharing, self._parts.counts.by_broker(channel), statement.values)

    def _brokers(self, names: Iterable[str]) -> list[BrokerEntry]:
        return [self._parts.brokers.get(self._parts.definitions.get(Kind.BROKER, name).name) for name in names]

    def _change(self, statement: ChangeSubscription, request: _Request) -> Answer:
        subscriptions, own = self._own(statement.channel, statement.subscription, request)
        broker = None if statement.broker is None else self._parts.open_broker(statement.broker)
        subscriptions.change(own.id, parameters=statement.values, broker=broker)
        if broker is not None and self._parts.is_dropped(broker):
            subscriptions.change(own.id, parameters=own.parameters, broker=own.broker)
            raise _dropped(broker)
        return Answer(f"changed subscription {own.id}, from the next run on")

    def _move(self, statement: MoveSubscriptions, request: _Request) -> Answer:
        """Give the subscriptions at a broker to another one; a user moves his own."""
        source = self._parts.definitions.get(Kind.BROKER, statement.source).name
        target = self._parts.open_broker(statement.target)
        channels = [statement.channel] if statement.channel is not None else self._channel_names()
        moved = sum(self._subscriptions(channel).move(source, target, user=request.user) for channel in channels)
        if self._parts.is_dropped(target):
            for channel in channels:
                self._subscriptions(channel).move(target, source, user=request.user)
            raise _dropped(target)
        return Answer(f"moved {moved} subscriptions from {source} to {target}, from the next run on")

    def _channel_names(self) -> list[str]:
        channels = self._parts.definitions.all(Kind.CHANNEL)
        return [entry.name for entry in channels if entry.state in (State.READY, State.PAUSED)]

    def _balance(self, statement: Balance, request: _Request) -> Answer:
        """Move groups of a channel between brokers until the loads of its brokers are about equal."""
        definition = self._owned(Kind.CHANNEL, statement.channel, request)
        subscriptions, compiled = self._subscriptions(definition.name), self._parts.compiled(definition)
        loads = group_loads(self._parts.catalogue, compiled, subscriptions)
        wanted = statement.brokers or tuple(sorted({entry.broker for entry in loads}))
        named = self._brokers(wanted)
        sharing = [broker.name for broker in named if _takes_subscriptions(broker)]
        targets = moves(loads, sharing)
        moved = subscriptions.move_groups(targets) if targets else 0
        after = [replace(entry, broker=targets.get(entry.group, entry.broker)) for entry in loads]
        rows = tuple((name, load_at(loads, name), load_at(after, name)) for name in (entry.name for entry in named))
        text = f"moved {moved} subscriptions in {len(targets)} groups, from the next run on"
        return Answer(text, ("broker", "bytes before", "bytes after"), rows)

    def _pause(self, statement: Pause | Resume, request: _Request) -> Answer:
        """Pause or resume a subscription, a broker, a channel or a procedure."""
        pauses = isinstance(statement, Pause)
        done = "paused" if pauses else "resumed"
        if statement.kind is Kind.SUBSCRIPTION:
            subscriptions, own = self._own(statement.name, statement.subscription, request)
            (subscriptions.pause if pauses else subscriptions.resume)(own.id)
            return Answer(f"{done} subscription {own.id}")
        self._owned(statement.kind, statement.name, request)
        if statement.kind is Kind.BROKER:
            brokers = self._parts.brokers
            (brokers.drain if pauses else brokers.resume)(statement.name)
        else:
            self._set_state(statement.kind, statement.name, State.PAUSED if pauses else State.READY)
        return Answer(f"{done} {statement.kind} {statement.name}")

    def _set_state(self, kind: Kind, name: str, after: State) -> None:
        def change(definition: Definition) -> Definition:
            if definition.state not in (State.READY, State.PAUSED):
                raise ConfigurationError(f"{kind} {name!r} is {definition.state}")
            return replace(definition, state=after)

        self._parts.definitions.change(kind, name, change)

    def _alter(self, statement: AlterChannel, request: _Request) -> Answer:
        self._owned(Kind.CHANNEL, statement.channel, request)

        def change(definition: Definition) -> Definition:
            channel = definition.statement
            assert isinstance(channel, CreateChannel)
            changed = {"period_us": statement.period_us} if statement.period_us else {"priority": statement.priority}
            return replace(definition, text=written(replace(channel, **changed)))

        self._parts.definitions.change(Kind.CHANNEL, statement.channel, change)
        return Answer(f"altered channel {statement.channel}")

    def _execute(self, statement: Execute, request: _Request) -> Answer:
        if request.depth >= _DEEPEST:
            raise ConfigurationError(f"procedures execute one another more than {_DEEPEST} deep")
        definition, procedure = self._procedure(statement.procedure)
        if procedure.period_us is None:
            return self._executed_once(procedure, statement, request)
        self._owned(Kind.PROCEDURE, statement.procedure, request)
        answer = self._executed_once(procedure, statement, request)
        now = self._parts.procedures.now()
        values = tuple(map(statement_value, statement.values))
        repeated = Repeated(
            name=definition.name,
            text=written(replace(statement, values=values)),
            user=request.user,
            created=definition.created,
            due=Every(procedure.period_us).next(now),
            executed=now,
        )
        self._parts.procedures.begin(repeated)
        return replace(answer, text=f"{answer.text}; again at {moment(repeated.due)}" if answer.text else "")

    def _procedure(self, name: str) -> tuple[Definition, CreateProcedure]:
        definition = self._parts.definitions.get(Kind.PROCEDURE, name)
        assert isinstance(definition.statement, CreateProcedure)
        return definition, definition.statement

    def _executed_once(self, procedure: CreateProcedure, statement: Execute, request: _Request) -> Answer:
        names = [parameter.name for parameter in procedure.parameters]
        if len(names) != len(statement.values):
            raise ConfigurationError(
                f"procedure {procedure.name!r} has {len(names)} parameters, not {len(statement.values)}"
            )
        (inner,) = parse(procedure.body.text)
        values = dict(zip(names, statement.values, strict=True))
        return self._answer(bound_statement(inner, values), _Request(request.user, values, request.depth + 1))

    def _drop(self, statement: Drop, request: _Request) -> Answer:
        kind, name, definitions = statement.kind, statement.name, self._parts.definitions
        if statement.missing_ok and definitions.find(kind, name) is None:
            return Answer(f"there is no {kind} {name}")
        self._owned(kind, name, request)
        definition = definitions.begin_drop(kind, name)
        if kind is Kind.BROKER:
            self._refuse_subscribers(definition)
        drops: Mapping[Kind, Callable[[str], None]] = {
            Kind.DATASET: self._creation.drop_dataset,
            Kind.CHANNEL: self._creation.drop_channel,
            Kind.BROKER: lambda broker: self._parts.brokers.drop(broker),
            Kind.FEED: lambda feed: self._parts.feeds.drop(feed),
            Kind.PROCEDURE: self._parts.procedures.end,
        }
        if kind in drops:
            try:
                drops[kind](definition.name)
            except ConfigurationError:
                if self._is_there(kind, definition.name):
                    definitions.change(kind, name, lambda present: replace(present, state=State.READY))
                    raise
        definitions.end_drop(definition)
        return Answer(f"dropped {kind} {definition.name}")

    def _is_there(self, kind: Kind, name: str) -> bool:
        """Return whether more than the definition is there: a process that was killed may have left it alone."""
        if kind is Kind.DATASET:
            return name in dataset_names(self._parts.catalogue)
        with suppress(ConfigurationError):
            (self._parts.feeds if kind is Kind.FEED else self._parts.brokers).get(name)
            return True
        return False

    def _refuse_subscribers(self, broker: Definition) -> None:
        """Take the beginning of a drop back if a channel has subscriptions at the broker. Raises ConfigurationError."""
        definitions = self._parts.definitions
        for channel in definitions.all(Kind.CHANNEL):
            if channel.state is State.CREATING:
                continue
            if number := self._parts.counts.at_broker(channel.name, broker.name):
                definitions.change(Kind.BROKER, broker.name, lambda present: replace(present, state=State.READY))
                raise ConfigurationError(
                    f"broker {broker.name!r} is in use: channel {channel.name} has {number} subscriptions at it"
                )

    def _may_replace(self, request: _Request) -> Callable[[Kind, str], None]:
        def check(kind: Kind, name: str) -> None:
            if self._parts.definitions.find(kind, name) is not None:
                self._owned(kind, name, request)

        return check

    def _owned(self, kind: Kind, name: str, request: _Request) -> Definition:
        """Return a definition that the user may change. Raises ConfigurationError."""
        definition = self._parts.definitions.get(kind, name)
        if request.user not in ("", definition.user):
            raise ConfigurationError(f"{kind} {name!r} belongs to another user")
        return definition

    def _own(self, channel: str, subscription: Any, request: _Request) -> tuple[Subscriptions, Subscription]:
        """Return a subscription that the user may change. Raises ConfigurationError."""
        subscriptions = self._subscriptions(channel)
        entry = subscriptions.get(str(subscription))
        if request.user not in ("", entry.user):
            raise ConfigurationError(f"channel {channel!r} has no subscription {str(subscription)!r}")
        return subscriptions, entry

    def _subscriptions(self, channel: str) -> Subscriptions:
        definition = self._parts.definitions.get(Kind.CHANNEL, channel)
        return Subscriptions(self._parts.catalogue, definition.name, self._parts.compiled(definition).parameters)


def _dropped(broker: str) -> ConfigurationError:
    return ConfigurationError(f"broker {broker!r} was dropped: name another one")


def _takes_subscriptions(broker: BrokerEntry) -> bool:
    return broker.accepts_subscriptions and not broker.is_down
