"""Parts of statements: names, columns, values, durations and bodies, each read from its tree."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from lark import Token, Tree

from quaestor.channels.statements.bodies import query_of
from quaestor.channels.statements.durations import UNITS_S, checked, iso_duration
from quaestor.channels.statements.errors import StatementError
from quaestor.channels.statements.masking import place as place_in
from quaestor.channels.statements.model import Body, Bound, Ending, Parameter, Place, Priority, Value
from quaestor.channels.statements.types import type_named
from quaestor.channels.statements.values import instant_of_text, unquoted, value_of
from quaestor.tables.schema import Column, Schema, SchemaError

MOST_ITEMS: Final = 1_000
LONGEST_NAME: Final = 63
SHORTEST_PERIOD_US: Final = 1_000_000
"""Limits: items of a list, letters of a name, and the period of a channel."""


class Parts:
    """Parts of one statement's tree: each method reads one part. Methods raise StatementError at its place."""

    def __init__(self, text: str, tree: Tree[Token]) -> None:
        self.text = text
        self.tree = tree
        self.parts: dict[str, list[Tree[Token]]] = {}
        self.words: set[str] = set()
        for child in tree.children:
            if isinstance(child, Tree):
                self.parts.setdefault(str(child.data), []).append(child)
            else:
                self.words.add(child.type)
        self.place = Place(*place_in(text, int(tree.meta.start_pos)))

    def has(self, part: str) -> bool:
        """Return whether a part is there."""
        return part in self.parts

    def part(self, part: str) -> Tree[Token]:
        """Return the first part of a kind."""
        return self.parts[part][0]

    def tree_without(self, part: str) -> Tree[Token]:
        """Return the tree without a part."""
        return Tree("explain", [c for c in self.tree.children if isinstance(c, Tree) and c.data != part])

    def error(self, tree: Tree[Token], reason: str, expected: tuple[str, ...] = ()) -> StatementError:
        """Return an error at the place of a tree."""
        return StatementError(*place_in(self.text, int(tree.meta.start_pos)), reason, expected)

    def name(self, number: int = 0) -> str:
        """Return the name with a number, from 0."""
        return self.name_in(self.parts["name"][number])

    def name_in(self, tree: Tree[Token]) -> str:
        """Return the name of a tree."""
        name = str(token_of(tree))
        if len(name) > LONGEST_NAME:
            raise self.error(tree, f"the name has {len(name)} letters, at most {LONGEST_NAME} are allowed")
        return name

    def number(self, tree: Tree[Token]) -> int:
        """Return a number without sign."""
        digits = str(token_of(tree))
        if len(digits) > 18:
            raise self.error(tree, f"the number has {len(digits)} digits, at most 18 are allowed")
        return int(digits)

    def word_of(self, part: str, *, last: bool = False) -> str:
        """Return the keyword of a part, in small letters; empty: there is no such part."""
        if part not in self.parts:
            return ""
        token = self.part(part).children[-1 if last else 0]
        return str(token).lower()

    def ending(self) -> Ending:
        """Return the treatment of a name that is taken."""
        if self.has("replace"):
            if self.has("if_not_exists"):
                raise self.error(self.part("if_not_exists"), "OR REPLACE and IF NOT EXISTS exclude each other")
            return Ending.REPLACE
        return Ending.KEEP if self.has("if_not_exists") else Ending.ERROR

    def options(self) -> Mapping[str, Any]:
        """Return the options of WITH."""
        token = self.part("with").children[-1]
        assert isinstance(token, Token)
        options: dict[str, Any] = json.loads(self.text[token.start_pos : token.end_pos])
        return options

    def columns(self) -> Schema:
        """Return the columns, without a key."""
        columns: list[Column] = []
        tree = self.part("columns")
        self._few(tree)
        for part in trees(tree):
            name, kind = trees(part)
            columns.append(Column(self.name_in(name), self._type(kind)))
            try:
                Schema(tuple(columns))
            except SchemaError as error:
                raise self.error(part, str(error)) from error
        return Schema(tuple(columns))

    def _type(self, tree: Tree[Token]) -> Any:
        try:
            return type_named(str(token_of(tree)))
        except ValueError as error:
            raise self.error(tree, str(error)) from error

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters."""
        tree = self.part("parameters")
        self._few(tree)
        parameters: list[Parameter] = []
        for part in trees(tree):
            name, *kind = trees(part)
            parameter = Parameter(self.name_in(name), self._type(kind[0]) if kind else None)
            if parameter.name.lower() in {known.name.lower() for known in parameters}:
                raise self.error(part, f"two parameters are named {parameter.name!r}; rename one")
            parameters.append(parameter)
        return tuple(parameters)

    def values(self) -> tuple[Value, ...]:
        """Return the values."""
        tree = self.part("values")
        self._few(tree)
        return tuple(self._value(part) for part in trees(tree))

    def _value(self, tree: Tree[Token]) -> Value:
        if tree.data == "list":
            self._few(tree)
            return tuple(self._value(part) for part in trees(tree))
        try:
            return value_of(tree)
        except ValueError as error:
            raise self.error(tree, str(error)) from error

    def _few(self, tree: Tree[Token]) -> None:
        if len(tree.children) > MOST_ITEMS:
            raise self.error(tree, f"the list has {len(tree.children)} items, at most {MOST_ITEMS} are allowed")

    def subscription(self) -> Value:
        """Return the id of a subscription."""
        token = token_of(self.part("subscription"))
        if token.type == "BOUND":
            return Bound(token[1:])
        return unquoted(token) if token.type == "STRING" else str(token)

    def period(self) -> int:
        """Return the period of a channel or procedure, in microseconds."""
        tree = self.part("period")
        part = tree.children[-1]
        assert isinstance(part, Tree)
        period = self.duration(part)
        if period < SHORTEST_PERIOD_US:
            raise self.error(part, "the period is too short", ("1 second or more",))
        return period

    def duration(self, tree: Tree[Token]) -> int:
        """Return a duration in microseconds."""
        try:
            if tree.data == "counted":
                number, unit = trees(tree)
                seconds = UNITS_S[str(token_of(unit)).lower().removesuffix("s")]
                return checked(self.number(number) * seconds * 1_000_000)
            return iso_duration(unquoted(token_of(first(tree))))
        except ValueError as error:
            raise self.error(tree, str(error)) from error

    def option(self, tree: Tree[Token]) -> Any:
        """Return the value of a channel's option."""
        match tree.data:
            case "from_start":
                return self.start(tree)
            case "priority":
                return self.priority_in(tree)
        return True

    def priority_in(self, tree: Tree[Token]) -> Priority:
        """Return the priority of a channel."""
        return Priority(str(tree.children[-1]).lower())

    def start(self, tree: Tree[Token]) -> str:
        """Return the start of a channel: now, beginning, or an instant in ISO 8601."""
        part = tree.children[-1]
        if isinstance(part, Token):
            return part.lower()
        try:
            return instant_of_text(unquoted(token_of(part))).isoformat()
        except ValueError as error:
            raise self.error(part, str(error)) from error

    def body(self) -> Body:
        """Return the body, unread."""
        token = token_of(self.part("body"))
        start, end = int(token.start_pos or 0), int(token.end_pos or 0)
        return Body(self.text[start:end], Place(*place_in(self.text, start)))

    def query(self) -> Body:
        """Return the body, which is one query."""
        body = self.body()
        query_of(body)
        return body

    def string_body(self, tree: Tree[Token]) -> Body:
        """Return a reference to Python as a body."""
        reference = unquoted(token_of(tree))
        module, _, function = reference.partition(":")
        if not all(part.isidentifier() for part in module.split(".")) or not function.isidentifier():
            raise self.error(tree, f"{reference!r} is no reference to Python", ("'module:function'",))
        return Body(reference, Place(*place_in(self.text, int(tree.meta.start_pos))))


def trees(tree: Tree[Token]) -> Iterator[Tree[Token]]:
    """Yield the children of a tree, which are trees."""
    for child in tree.children:
        assert isinstance(child, Tree)
        yield child


def trees_of(tree: Tree[Token]) -> Iterator[Tree[Token]]:
    """Yield the children of a tree that are trees, without the keywords."""
    return (child for child in tree.children if isinstance(child, Tree))


def first(tree: Tree[Token]) -> Tree[Token]:
    """Return the first child that is a tree."""
    return next(trees_of(tree))


def token_of(tree: Tree[Token]) -> Token:
    """Return the last child, which is a token."""
    token = tree.children[-1]
    assert isinstance(token, Token)
    return token
