"""Reading of statements: heads by the grammar, bodies by sqlglot."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from typing import Any, Final

from lark import Lark
from lark.exceptions import UnexpectedInput, UnexpectedToken

from quaestor.channels.statements.errors import StatementError
from quaestor.channels.statements.grammar import described, grammar
from quaestor.channels.statements.masking import masked
from quaestor.channels.statements.masking import place as place_in
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
    Execute,
    Explain,
    Kind,
    Mode,
    MoveSubscriptions,
    Pause,
    Query,
    Resume,
    Show,
    StartFeed,
    Statement,
    StopFeed,
    Subscribe,
    Unsubscribe,
    Using,
)
from quaestor.channels.statements.parts import Parts, first, token_of, trees, trees_of
from quaestor.channels.statements.values import unquoted
from quaestor.tables.schema import Schema

_OPTIONS: Final = {
    "from_start": "start",
    "distinct": "distinct",
    "every_instant": "every_instant",
    "priority": "priority",
}
"""Names of a channel's options in the grammar, and in the statement."""
MOST_STATEMENTS: Final = 1_000
MOST_PARTITIONS: Final = 64
"""Limits: statements of a text, and partitions of a dataset."""


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
        raise _fault(text, mask, error) from error
    if len(tree.children) > MOST_STATEMENTS:
        raise StatementError(1, 1, f"the text has more than {MOST_STATEMENTS} statements; send them in parts")
    statements = tuple(_Reader(text, tree).statement() for tree in trees(tree))
    for statement in statements:
        if inside and isinstance(statement, CreateProcedure):
            raise StatementError(*statement.place, "a procedure cannot create a procedure")
    return statements


@cache
def _parser() -> Lark:
    return Lark(grammar(), parser="lalr", lexer="contextual", propagate_positions=True)


def _fault(text: str, mask: str, error: UnexpectedInput) -> StatementError:
    position = len(text.rstrip()) if _is_end(error) else int(error.pos_in_stream or 0)
    names = _accepted(mask)
    word = re.compile(r"\w+|\S").match(text, position)
    unexpected = word[0] if word else ""
    expected = tuple(sorted({described(name) for name in names}, key=lambda word: (not word.isupper(), word)))
    reason = f"unexpected {unexpected[:20]!r}" if unexpected else "the statement does not end here"
    return StatementError(*place_in(text, position), reason, expected)


def _accepted(mask: str) -> set[str]:
    """Return the terminals that the grammar accepts at the fault."""
    state = _parser().parse_interactive(mask)
    with suppress(UnexpectedInput):
        state.exhaust_lexer()
    return set(state.accepts())  # type: ignore[no-untyped-call]


def _is_end(error: UnexpectedInput) -> bool:
    return isinstance(error, UnexpectedToken) and error.token.type == "$END"


class _Reader(Parts):
    """Reader of one statement's tree."""

    def statement(self) -> Statement:
        """Return the statement."""
        read: Statement = getattr(self, f"_read_{self.tree.data}")()
        return read

    def _read_create_type(self) -> CreateType:
        return CreateType(
            place=self.place,
            name=self.name(),
            columns=self.columns(),
            closed=self.word_of("openness") == "closed",
            ending=self.ending(),
        )

    def _read_create_dataset(self) -> CreateDataset:
        kind = self.parts.get("of_type")
        columns: Schema | str = self.columns() if kind is None else self.name_in(first(kind[0]))
        key = tuple(self.name_in(part) for part in trees(self.part("key")))
        if isinstance(columns, Schema):
            for name in key:
                if name not in columns.names:
                    raise self.error(self.part("key"), f"the key {name!r} is no column", columns.names)
        partitions = self.number(first(self.part("partitions"))) if self.has("partitions") else 1
        if not 1 <= partitions <= MOST_PARTITIONS:
            raise self.error(self.part("partitions"), f"{partitions} partitions", (f"1 to {MOST_PARTITIONS}",))
        return CreateDataset(
            place=self.place,
            name=self.name(),
            columns=columns,
            key=key,
            active=self.has("active"),
            closed=self.word_of("openness") == "closed",
            partitions=partitions,
            retain_us=self.duration(first(self.part("retain"))) if self.has("retain") else None,
            ending=self.ending(),
        )

    def _read_create_feed(self) -> CreateFeed:
        return CreateFeed(place=self.place, name=self.name(), options=self.options(), ending=self.ending())

    def _read_create_function(self) -> CreateFunction:
        python = self.parts.get("python")
        body = self.query() if python is None else self.string_body(first(python[0]))
        return CreateFunction(
            place=self.place,
            name=self.name(),
            parameters=self.parameters(),
            body=body,
            python=python is not None,
            ending=self.ending(),
        )

    def _read_create_repetitive(self) -> CreateChannel:
        function = self.name(1)
        using = Using(function=function, arity=self.number(self.part("number")))
        return self._channel(using=using)

    def _read_create_continuous(self) -> CreateChannel:
        return self._channel(parameters=self.parameters(), body=self.query())

    def _channel(self, **parts: Any) -> CreateChannel:
        options: dict[str, Any] = {}
        for kind, key in _OPTIONS.items():
            given = self.parts.get(kind, ())
            if len(given) > 1:
                raise self.error(given[1], "the option is there twice; delete one")
            if given:
                options[key] = self.option(given[0])
        return CreateChannel(
            place=self.place,
            name=self.name(),
            period_us=self.period(),
            push=self.has("push"),
            grouped=not self.has("ungrouped"),
            ending=self.ending(),
            **options,
            **parts,
        )

    def _read_create_broker(self) -> CreateBroker:
        return CreateBroker(
            place=self.place,
            name=self.name(),
            url=unquoted(token_of(self.part("string"))),
            options=self.options() if self.has("with") else {},
            ending=self.ending(),
        )

    def _read_create_procedure(self) -> CreateProcedure:
        token = token_of(self.part("body"))
        end = int(token.end_pos or 0)
        inner = parse_part(self.text, int(token.start_pos or 0), end, inside=True)
        if len(inner) != 1:
            raise self.error(self.part("body"), f"a procedure has one statement, not {len(inner)}")
        return CreateProcedure(
            place=self.place,
            name=self.name(),
            parameters=self.parameters(),
            body=self.body(),
            period_us=self.period() if self.has("period") else None,
            ending=self.ending(),
        )

    def _read_connect_feed(self) -> ConnectFeed:
        mode = self.word_of("mode", last=True)
        function = self.name_in(first(self.part("apply"))) if self.has("apply") else None
        return ConnectFeed(
            place=self.place,
            feed=self.name(),
            dataset=self.name(1),
            function=function,
            mode=Mode(mode) if mode else None,
        )

    def _read_start_feed(self) -> StartFeed:
        return StartFeed(place=self.place, feed=self.name())

    def _read_stop_feed(self) -> StopFeed:
        return StopFeed(place=self.place, feed=self.name())

    def _read_subscribe(self) -> Subscribe:
        returning = self.name_in(first(self.part("returning"))) if self.has("returning") else ""
        brokers = self._among()
        return Subscribe(
            place=self.place,
            channel=self.name(),
            values=self.values(),
            broker="" if brokers else self.name(1),
            brokers=brokers,
            returning=returning,
        )

    def _read_unsubscribe(self) -> Unsubscribe:
        return Unsubscribe(place=self.place, subscription=self.subscription(), channel=self.name())

    def _read_change_subscription(self) -> ChangeSubscription:
        return ChangeSubscription(
            place=self.place,
            subscription=self.subscription(),
            channel=self.name(),
            values=self.values() if self.has("values") else None,
            broker=self.name_in(first(self.part("to_broker"))) if self.has("to_broker") else None,
        )

    def _read_move_subscriptions(self) -> MoveSubscriptions:
        return MoveSubscriptions(
            place=self.place,
            source=self.name(),
            target=self.name_in(first(self.part("to_broker"))),
            channel=self.name_in(first(self.part("of_channel"))) if self.has("of_channel") else None,
        )

    def _read_balance(self) -> Balance:
        return Balance(place=self.place, channel=self.name(), brokers=self._among())

    def _among(self) -> tuple[str, ...]:
        return tuple(map(self.name_in, trees_of(self.part("among")))) if self.has("among") else ()

    def _read_pause(self) -> Pause:
        return Pause(place=self.place, **self._pausable())

    def _read_resume(self) -> Resume:
        return Resume(place=self.place, **self._pausable())

    def _pausable(self) -> dict[str, Any]:
        if "SUBSCRIPTION" in self.words:
            return {"kind": Kind.SUBSCRIPTION, "name": self.name(), "subscription": self.subscription()}
        kind = next(kind for kind in (Kind.CHANNEL, Kind.BROKER, Kind.PROCEDURE) if kind.upper() in self.words)
        return {"kind": kind, "name": self.name()}

    def _read_alter_channel(self) -> AlterChannel:
        period_us = self.period() if self.has("period") else None
        priority = self.priority_in(self.part("priority")) if self.has("priority") else None
        return AlterChannel(place=self.place, channel=self.name(), period_us=period_us, priority=priority)

    def _read_execute(self) -> Execute:
        return Execute(place=self.place, procedure=self.name(), values=self.values())

    def _read_drop(self) -> Drop:
        return Drop(
            place=self.place,
            kind=Kind(self.word_of("kind")),
            name=self.name(),
            missing_ok=self.has("if_exists"),
        )

    def _read_show(self) -> Show:
        channel = self.name_in(first(self.part("of_channel"))) if self.has("of_channel") else None
        return Show(place=self.place, what=(self.words - {"SHOW"}).pop().lower(), channel=channel)

    def _read_describe(self) -> Describe:
        kind = self.word_of("kind")
        return Describe(place=self.place, name=self.name(), kind=Kind(kind) if kind else None)

    def _read_explain(self) -> Explain:
        analyze = self.has("analyze")
        if "CHANNEL" in self.words:
            return Explain(place=self.place, target=self.name(), analyze=analyze)
        target = _Reader(self.text, next(tree for tree in trees(self.tree_without("analyze")))).statement()
        assert isinstance(target, Query | CreateChannel)
        return Explain(place=self.place, target=target, analyze=analyze)

    def _read_query(self) -> Query:
        return Query(place=self.place, body=self.query())
