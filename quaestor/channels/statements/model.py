"""Statements as frozen values. The place of a statement in its text does not count when two statements are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from quaestor.channels.statements.errors import StatementError
from quaestor.tables.schema import Schema, Type


class Place(NamedTuple):
    """Line and column in a text, each from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Point:
    """Value of type point; on the sphere x is the longitude in degrees, y the latitude."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Bound:
    """Value that is bound under a name, written `$name`."""

    name: str


Value: TypeAlias = str | int | float | bool | datetime | Point | Bound | tuple["Value", ...] | None


@dataclass(frozen=True, slots=True)
class Body:
    """Part of a statement in another language: a query in SQL, or a statement of a procedure.

    place: of its first character.
    """

    text: str
    place: Place = field(default=Place(1, 1), compare=False)

    def located(self, line: int, column: int) -> Place:
        """Return the place in the whole text of a place in the body, each from 1; (0, _) is the beginning of the body."""
        if line < 1:
            return self.place
        return Place(self.place.line + line - 1, column + (self.place.column - 1 if line == 1 else 0))

    def error(self, line: int, column: int, reason: str, expected: tuple[str, ...] = ()) -> StatementError:
        """Return the error of a place in the body."""
        return StatementError(*self.located(line, column), reason, expected)


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of a function, channel or procedure. type: None: any."""

    name: str
    type: Type | None = None


class Ending(StrEnum):
    """Treatment of a name that is taken."""

    ERROR = "error"
    KEEP = "if not exists"
    REPLACE = "or replace"


class Mode(StrEnum):
    """Meaning of a record whose key is there, for a feed."""

    INSERT = "insert"
    UPSERT = "upsert"
    MERGE = "merge"


class Priority(StrEnum):
    """Priority of a channel under load, highest first: the order of runs, and whose periods are stretched last."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Kind(StrEnum):
    """Kind of a named thing."""

    TYPE = "type"
    DATASET = "dataset"
    FEED = "feed"
    FUNCTION = "function"
    CHANNEL = "channel"
    BROKER = "broker"
    PROCEDURE = "procedure"
    SUBSCRIPTION = "subscription"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Statement. place: of its first word."""

    place: Place = field(default=Place(1, 1), compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateType(Statement):
    """CREATE TYPE. closed: whether other fields than the columns are refused."""

    name: str
    columns: Schema
    closed: bool = False
    ending: Ending = Ending.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDataset(Statement):
    """CREATE DATASET.

    columns: schema without key, or the name of a type.
    retain_us: how long records are kept; None: for ever.
    """

    name: str
    columns: Schema | str
    key: tuple[str, ...]
    active: bool = False
    closed: bool = False
    partitions: int = 1
    retain_us: int | None = None
    ending: Ending = Ending.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateFeed(Statement):
    """CREATE FEED. options: of WITH."""

    name: str
    options: Mapping[str, Any]
    ending: Ending = Ending.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectFeed(Statement):
    """CONNECT FEED to a dataset. mode: None: as the options of the feed say."""

    feed: str
    dataset: str
    function: str | None = None
    mode: Mode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFeed(Statement):
    """START FEED."""

    feed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopFeed(Statement):
    """STOP FEED: the feed drains."""

    feed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateFunction(Statement):
    """CREATE FUNCTION. body: a query, or a reference `module:function` to Python."""

    name: str
    parameters: tuple[Parameter, ...]
    body: Body
    python: bool = False
    ending: Ending = Ending.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Using:
    """Function of a repetitive channel, with its number of parameters."""

    function: str
    arity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateChannel(Statement):
    """CREATE CHANNEL.

    using: function of a repetitive channel; None: a continuous channel.
    body: query of a continuous channel; None: a repetitive channel.
    start: `now`, `beginning`, or an instant in ISO 8601.
    distinct: whether each subscription has each result once.
    grouped: whether subscriptions with equal parameters share results.
    priority: under load.
    """

    name: str
    period_us: int
    using: Using | None = None
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    push: bool = False
    start: str = "now"
    distinct: bool = False
    every_instant: bool = False
    grouped: bool = True
    priority: Priority = Priority.NORMAL
    ending: Ending = Ending.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateBroker(Statement):
    """CREATE BROKER at a URL. options: of WITH."""

    name: str
    url: str
    options: Mapping[str, Any] = field(default_factory=dict)
    ending: Ending = Ending.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe(Statement):
    """SUBSCRIBE TO a channel on a broker.

    broker: empty: one of `brokers`.
    returning: the name of the answer's column; empty: `id`.
    """

    channel: str
    values: tuple[Value, ...]
    broker: str = ""
    brokers: tuple[str, ...] = ()
    returning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscribe(Statement):
    """UNSUBSCRIBE."""

    subscription: Value
    channel: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSubscription(Statement):
    """CHANGE SUBSCRIPTION: other parameters or another broker from the next run on; None: as before."""

    subscription: Value
    channel: str
    values: tuple[Value, ...] | None = None
    broker: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveSubscriptions(Statement):
    """CHANGE SUBSCRIPTIONS at a broker: another broker from the next run on. channel: None: of all channels."""

    source: str
    target: str
    channel: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance(Statement):
    """BALANCE the subscriptions of a channel. brokers: empty: the brokers that have subscriptions of the channel."""

    channel: str
    brokers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(Statement):
    """PAUSE a channel, broker, procedure or subscription. subscription: its id, and `name` is its channel."""

    kind: Kind
    name: str
    subscription: Value = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(Statement):
    """RESUME a channel, broker, procedure or subscription. subscription: its id, and `name` is its channel."""

    kind: Kind
    name: str
    subscription: Value = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterChannel(Statement):
    """ALTER CHANNEL SET PERIOD or PRIORITY. None: it stays as it is."""

    channel: str
    period_us: int | None = None
    priority: Priority | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateProcedure(Statement):
    """CREATE PROCEDURE. period_us: how often EXECUTE repeats it; None: EXECUTE executes it once."""

    name: str
    parameters: tuple[Parameter, ...]
    body: Body
    period_us: int | None = None
    ending: Ending = Ending.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Execute(Statement):
    """EXECUTE a procedure."""

    procedure: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop(Statement):
    """DROP. missing_ok: whether a name without a thing is no error."""

    kind: Kind
    name: str
    missing_ok: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Show(Statement):
    """SHOW. what: plural noun in small letters. channel: only of this channel."""

    what: str
    channel: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe(Statement):
    """DESCRIBE. kind: None: any thing of this name."""

    name: str
    kind: Kind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Statement):
    """Ad hoc SELECT."""

    body: Body


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain(Statement):
    """EXPLAIN. target: a query, a statement that creates a channel, or the name of a channel."""

    target: Query | CreateChannel | str
    analyze: bool = False
