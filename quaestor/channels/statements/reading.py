"""Reading of statements: heads by the grammar, bodies by sqlglot."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from quaestor.channels.statements.bodies import query_of
from quaestor.channels.statements.durations import UNITS_S, checked, iso_duration
from quaestor.channels.statements.errors import StatementError
from quaestor.channels.statements.grammar import described, grammar
from quaestor.channels.statements.masking import masked
from quaestor.channels.statements.masking import place as place_in
from quaestor.channels.statements.model import (
    AlterChannel,
    Body,
    Bound,
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
    Mode,
    Parameter,
    Pause,
    Place,
    Query,
    Resume,
    Show,
    StartFeed,
    Statement,
    StopFeed,
    Subscribe,
    Unsubscribe,
    Using,
    Value,
)
from quaestor.channels.statements.types import type_named
from quaestor.channels.statements.values import instant_of_text, unquoted, value_of
from quaestor.tables.schema import Column, Schema, SchemaError

MOST_STATEMENTS: Final = 1_000
MOST_ITEMS: Final = 1_000
MOST_PARTITIONS: Final = 64
LONGEST_NAME: Final = 63
SHORTEST_PERIOD_US: Final = 1_000_000
"""Limits: statements of a text, items of a list, partitions of a dataset, letters of a name, and the period of a channel."""


def parse(text: str) -> tuple[Statement, ...]:
    """Return the statements of a text. Raises StatementError for the first fault.

    The time is bounded by limits of length, depth and number. A bound value `$name` stays unresolved.
    """
    return parse_part(text, 0, len(text))


def parse_part(text: str, start: int, end: int, *, inside: bool = False) -> tuple[Statement, ...]:
    """Return the statements of a part of a text, with their places in the whole text. Raises StatementError.

    inside: whether the part is the body of a procedure, where no procedure is created.
    """
    mask = masked(text, start, end)
    try:
        tree = _parser().parse(mask)
    except UnexpectedInput as error:
        raise _fault(text, error) from error
    if len(tree.children) > MOST_STATEMENTS:
        raise StatementError(1, 1, f"the text has more than {MOST_STATEMENTS} statements; send them in parts")
    statements = tuple(_Reader(text, tree).statement() for tree in _trees(tree))
    for statement in statements:
        if inside and isinstance(statement, CreateProcedure):
            raise StatementError(*statement.place, "a procedure cannot create a procedure")
    return statements


@cache
def _parser() -> Lark:
    return Lark(grammar(), parser="lalr", lexer="contextual", propagate_positions=True)


def _fault(text: str, error: UnexpectedInput) -> StatementError:
    if isinstance(error, UnexpectedCharacters):
        names, position = set(error.allowed or ()), int(error.pos_in_stream or 0)
    else:
        assert isinstance(error, UnexpectedToken | UnexpectedEOF)
        names = set(getattr(error, "accepts", None) or error.expected)
        position = len(text.rstrip()) if _is_end(error) else int(error.pos_in_stream or 0)
    found = text[position : position + 40].split("\n")[0].split(" ")[0]
    expected = tuple(sorted({described(name) for name in names}, key=lambda word: (not word.isupper(), word)))
    reason = f"unexpected {found[:20]!r}" if found else "the statement does not end here"
    return StatementError(*place_in(text, position), reason, expected)


def _is_end(error: UnexpectedInput) -> bool:
    token = getattr(error, "token", None)
    return token is None or token.type == "$END"


def _trees(tree: Tree[Token]) -> Iterator[Tree[Token]]:
    for child in tree.children:
        assert isinstance(child, Tree)
        yield child


class _Reader:
    """Reader of one statement's tree."""

    def __init__(self, text: str, tree: Tree[Token]) -> None:
        self._text = text
        self._tree = tree
        self._parts: dict[str, list[Tree[Token]]] = {}
        self._words: set[str] = set()
        for child in tree.children:
            if isinstance(child, Tree):
                self._parts.setdefault(str(child.data), []).append(child)
            else:
                self._words.add(child.type)
        self._place = Place(*place_in(text, int(tree.meta.start_pos)))

    def statement(self) -> Statement:
        """Return the statement."""
        read: Statement = getattr(self, f"_read_{self._tree.data}")()
        return read

    def _read_create_type(self) -> CreateType:
        return CreateType(
            place=self._place,
            name=self._name(),
            columns=self._columns(),
            closed=self._word_of("openness") == "closed",
            ending=self._ending(),
        )

    def _read_create_dataset(self) -> CreateDataset:
        kind = self._parts.get("of_type")
        columns: Schema | str = self._columns() if kind is None else self._name_in(_first(kind[0]))
        key = tuple(self._name_in(part) for part in _trees(self._one("key")))
        if isinstance(columns, Schema):
            for name in key:
                if name not in columns.names:
                    raise self._error(self._one("key"), f"the key {name!r} is no column", columns.names)
        partitions = self._number(_first(self._one("partitions"))) if self._has("partitions") else 1
        if not 1 <= partitions <= MOST_PARTITIONS:
            raise self._error(self._one("partitions"), f"{partitions} partitions", (f"1 to {MOST_PARTITIONS}",))
        return CreateDataset(
            place=self._place,
            name=self._name(),
            columns=columns,
            key=key,
            active=self._has("active"),
            closed=self._word_of("openness") == "closed",
            partitions=partitions,
            retain_us=self._duration(_first(self._one("retain"))) if self._has("retain") else None,
            ending=self._ending(),
        )

    def _read_create_feed(self) -> CreateFeed:
        return CreateFeed(place=self._place, name=self._name(), options=self._options(), ending=self._ending())

    def _read_create_function(self) -> CreateFunction:
        python = self._parts.get("python")
        body = self._query() if python is None else self._string_body(_first(python[0]))
        return CreateFunction(
            place=self._place,
            name=self._name(),
            parameters=self._parameters(),
            body=body,
            python=python is not None,
            ending=self._ending(),
        )

    def _read_create_repetitive(self) -> CreateChannel:
        function = self._name(1)
        using = Using(function=function, arity=self._number(self._one("number")))
        return self._channel(using=using)

    def _read_create_continuous(self) -> CreateChannel:
        return self._channel(parameters=self._parameters(), body=self._query())

    def _channel(self, **parts: Any) -> CreateChannel:
        options: dict[str, Any] = {}
        for kind, key in (("from_start", "start"), ("distinct", "distinct"), ("every_instant", "every_instant")):
            found = self._parts.get(kind, ())
            if len(found) > 1:
                raise self._error(found[1], "the option is there twice; delete one")
            if found:
                options[key] = self._start(found[0]) if kind == "from_start" else True
        return CreateChannel(
            place=self._place,
            name=self._name(),
            period_us=self._period(),
            push=self._has("push"),
            grouped=not self._has("ungrouped"),
            ending=self._ending(),
            **options,
            **parts,
        )

    def _read_create_broker(self) -> CreateBroker:
        return CreateBroker(
            place=self._place,
            name=self._name(),
            url=unquoted(_token(self._one("string"))),
            options=self._options() if self._has("with") else {},
            ending=self._ending(),
        )

    def _read_create_procedure(self) -> CreateProcedure:
        token = _token(self._one("body"))
        end = int(token.end_pos or 0)
        inner = parse_part(self._text, int(token.start_pos or 0), end, inside=True)
        if len(inner) != 1:
            raise self._error(self._one("body"), f"a procedure has one statement, not {len(inner)}")
        return CreateProcedure(
            place=self._place,
            name=self._name(),
            parameters=self._parameters(),
            body=self._body(),
            period_us=self._period() if self._has("period") else None,
            ending=self._ending(),
        )

    def _read_connect_feed(self) -> ConnectFeed:
        mode = self._word_of("mode", last=True)
        function = self._name_in(_first(self._one("apply"))) if self._has("apply") else None
        return ConnectFeed(
            place=self._place,
            feed=self._name(),
            dataset=self._name(1),
            function=function,
            mode=Mode(mode) if mode else None,
        )

    def _read_start_feed(self) -> StartFeed:
        return StartFeed(place=self._place, feed=self._name())

    def _read_stop_feed(self) -> StopFeed:
        return StopFeed(place=self._place, feed=self._name())

    def _read_subscribe(self) -> Subscribe:
        returning = self._name_in(_first(self._one("returning"))) if self._has("returning") else ""
        return Subscribe(
            place=self._place, channel=self._name(), values=self._values(), broker=self._name(1), returning=returning
        )

    def _read_unsubscribe(self) -> Unsubscribe:
        return Unsubscribe(place=self._place, subscription=self._subscription(), channel=self._name())

    def _read_change_subscription(self) -> ChangeSubscription:
        return ChangeSubscription(
            place=self._place,
            subscription=self._subscription(),
            channel=self._name(),
            values=self._values() if self._has("values") else None,
            broker=self._name_in(_first(self._one("to_broker"))) if self._has("to_broker") else None,
        )

    def _read_pause(self) -> Pause:
        return Pause(place=self._place, **self._pausable())

    def _read_resume(self) -> Resume:
        return Resume(place=self._place, **self._pausable())

    def _pausable(self) -> dict[str, Any]:
        if "SUBSCRIPTION" in self._words:
            return {"kind": Kind.SUBSCRIPTION, "name": self._name(), "subscription": self._subscription()}
        return {"kind": Kind.CHANNEL if "CHANNEL" in self._words else Kind.BROKER, "name": self._name()}

    def _read_alter_channel(self) -> AlterChannel:
        return AlterChannel(place=self._place, channel=self._name(), period_us=self._period())

    def _read_execute(self) -> Execute:
        return Execute(place=self._place, procedure=self._name(), values=self._values())

    def _read_drop(self) -> Drop:
        return Drop(
            place=self._place,
            kind=Kind(self._word_of("kind")),
            name=self._name(),
            missing_ok=self._has("if_exists"),
        )

    def _read_show(self) -> Show:
        channel = self._name_in(_first(self._one("of_channel"))) if self._has("of_channel") else None
        return Show(place=self._place, what=(self._words - {"SHOW"}).pop().lower(), channel=channel)

    def _read_describe(self) -> Describe:
        kind = self._word_of("kind")
        return Describe(place=self._place, name=self._name(), kind=Kind(kind) if kind else None)

    def _read_explain(self) -> Explain:
        analyze = self._has("analyze")
        if "CHANNEL" in self._words:
            return Explain(place=self._place, target=self._name(), analyze=analyze)
        target = _Reader(self._text, next(tree for tree in _trees(self._tree_without("analyze")))).statement()
        assert isinstance(target, Query | CreateChannel)
        return Explain(place=self._place, target=target, analyze=analyze)

    def _read_query(self) -> Query:
        return Query(place=self._place, body=self._query())

    def _has(self, part: str) -> bool:
        return part in self._parts

    def _one(self, part: str) -> Tree[Token]:
        return self._parts[part][0]

    def _tree_without(self, part: str) -> Tree[Token]:
        return Tree("explain", [c for c in self._tree.children if isinstance(c, Tree) and c.data != part])

    def _error(self, tree: Tree[Token], reason: str, expected: tuple[str, ...] = ()) -> StatementError:
        return StatementError(*place_in(self._text, int(tree.meta.start_pos)), reason, expected)

    def _name(self, number: int = 0) -> str:
        return self._name_in(self._parts["name"][number])

    def _name_in(self, tree: Tree[Token]) -> str:
        name = str(_token(tree))
        if len(name) > LONGEST_NAME:
            raise self._error(tree, f"the name has {len(name)} letters, at most {LONGEST_NAME} are allowed")
        return name

    def _number(self, tree: Tree[Token]) -> int:
        digits = str(_token(tree))
        if len(digits) > 18:
            raise self._error(tree, f"the number has {len(digits)} digits, at most 18 are allowed")
        return int(digits)

    def _word_of(self, part: str, *, last: bool = False) -> str:
        """Return the keyword of a part, in small letters; empty: there is no such part."""
        if part not in self._parts:
            return ""
        token = self._one(part).children[-1 if last else 0]
        return str(token).lower()

    def _ending(self) -> Ending:
        if self._has("replace"):
            if self._has("if_not_exists"):
                raise self._error(self._one("if_not_exists"), "OR REPLACE and IF NOT EXISTS exclude each other")
            return Ending.REPLACE
        return Ending.KEEP if self._has("if_not_exists") else Ending.ERROR

    def _options(self) -> Mapping[str, Any]:
        token = self._one("with").children[-1]
        assert isinstance(token, Token)
        options: dict[str, Any] = json.loads(self._text[token.start_pos : token.end_pos])
        return options

    def _columns(self) -> Schema:
        columns: list[Column] = []
        tree = self._one("columns")
        self._few(tree)
        for part in _trees(tree):
            name, kind = _trees(part)
            columns.append(Column(self._name_in(name), self._type(kind)))
            try:
                Schema(tuple(columns))
            except SchemaError as error:
                raise self._error(part, str(error)) from error
        return Schema(tuple(columns))

    def _type(self, tree: Tree[Token]) -> Any:
        try:
            return type_named(str(_token(tree)))
        except ValueError as error:
            raise self._error(tree, str(error)) from error

    def _parameters(self) -> tuple[Parameter, ...]:
        tree = self._one("parameters")
        self._few(tree)
        found: list[Parameter] = []
        for part in _trees(tree):
            name, *kind = _trees(part)
            parameter = Parameter(self._name_in(name), self._type(kind[0]) if kind else None)
            if parameter.name.lower() in {known.name.lower() for known in found}:
                raise self._error(part, f"two parameters are named {parameter.name!r}; rename one")
            found.append(parameter)
        return tuple(found)

    def _values(self) -> tuple[Value, ...]:
        tree = self._one("values")
        self._few(tree)
        return tuple(self._value(part) for part in _trees(tree))

    def _value(self, tree: Tree[Token]) -> Value:
        if tree.data == "list":
            self._few(tree)
            return tuple(self._value(part) for part in _trees(tree))
        try:
            return value_of(tree)
        except ValueError as error:
            raise self._error(tree, str(error)) from error

    def _few(self, tree: Tree[Token]) -> None:
        if len(tree.children) > MOST_ITEMS:
            raise self._error(tree, f"the list has {len(tree.children)} items, at most {MOST_ITEMS} are allowed")

    def _subscription(self) -> Value:
        token = _token(self._one("subscription"))
        if token.type == "BOUND":
            return Bound(token[1:])
        return unquoted(token) if token.type == "STRING" else str(token)

    def _period(self) -> int:
        tree = self._one("period")
        part = tree.children[-1]
        assert isinstance(part, Tree)
        period = self._duration(part)
        if period < SHORTEST_PERIOD_US:
            raise self._error(part, "the period is too short", ("1 second or more",))
        return period

    def _duration(self, tree: Tree[Token]) -> int:
        try:
            if tree.data == "counted":
                number, unit = _trees(tree)
                seconds = UNITS_S[str(_token(unit)).lower().removesuffix("s")]
                return checked(self._number(number) * seconds * 1_000_000)
            return iso_duration(unquoted(_token(_first(tree))))
        except ValueError as error:
            raise self._error(tree, str(error)) from error

    def _start(self, tree: Tree[Token]) -> str:
        part = tree.children[-1]
        if isinstance(part, Token):
            return part.lower()
        try:
            return instant_of_text(unquoted(_token(part))).isoformat()
        except ValueError as error:
            raise self._error(part, str(error)) from error

    def _body(self) -> Body:
        token = _token(self._one("body"))
        start, end = int(token.start_pos or 0), int(token.end_pos or 0)
        return Body(self._text[start:end], Place(*place_in(self._text, start)))

    def _query(self) -> Body:
        body = self._body()
        query_of(body)
        return body

    def _string_body(self, tree: Tree[Token]) -> Body:
        reference = unquoted(_token(tree))
        module, _, function = reference.partition(":")
        if not all(part.isidentifier() for part in module.split(".")) or not function.isidentifier():
            raise self._error(tree, f"{reference!r} is no reference to Python", ("'module:function'",))
        return Body(reference, Place(*place_in(self._text, int(tree.meta.start_pos))))


def _first(tree: Tree[Token]) -> Tree[Token]:
    return next(child for child in tree.children if isinstance(child, Tree))


def _token(tree: Tree[Token]) -> Token:
    token = tree.children[-1]
    assert isinstance(token, Token)
    return token
