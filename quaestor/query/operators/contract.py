"""The contract of operators: reading an operand, and evaluating it. The tables are in `operators/__init__.py`.

There are two kinds. A field operator belongs to a path (`{price: {$gt: 5}}`) and holds when it holds for any value that
the path reaches; it is written as a test of one such value, which may be MISSING. A document operator stands where a
field name would (`{$or: [...]}`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from quaestor.query.ast import Node, Predicate
from quaestor.query.paths import Matcher, Test


class Level(Enum):
    """The place of an operator in the filter: some operators are only allowed in one place."""

    TOP = "the filter itself, or $and, $or, $nor directly below it"
    ELEMENT = "inside $elemMatch: the documents are elements of an array"


class Parser(Protocol):
    """The parser, for operators with filters inside."""

    def document(self, source: Any, level: Level) -> Node:
        """Read a filter: a document of fields and document operators."""

    def field(self, path: str, source: Mapping[str, Any], level: Level) -> Node:
        """Read the operators that apply to one path."""

    def is_field_operator(self, name: Any) -> bool:
        """Whether an operator on a path has this name."""


class Compiler(Protocol):
    """The compiler, for operators with filters inside."""

    def matcher(self, node: Node) -> Matcher:
        """Return a function of a document."""

    def test(self, node: Node) -> Test:
        """Return a function of one bare value, for predicates without a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldOperator:
    """An operator on a path.

    parse(parser, path, operand, siblings, level): returns the node with its meaning, or None if it has none by itself
        ($options). `siblings` is the whole document around the operator. Raises MalformedQueryError or
        UnsupportedQueryError.
    test(compiler, predicate): returns a function of one value.
    whole_arrays: an array at the end of the path is one value.
    matcher: if set, evaluates the predicate on the whole document instead of `test` (then it cannot stand in
        $elemMatch over bare values).
    identity(operand): returns the distinguishing part of the operand, as a BSON value; None: the operand is a BSON value itself.
    """

    parse: Callable[[Parser, str, Any, Mapping[str, Any], Level], Node | None]
    test: Callable[[Compiler, Predicate], Test] | None = None
    whole_arrays: bool = False
    matcher: Callable[[Compiler, Predicate], Matcher] | None = None
    identity: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentOperator:
    """An operator on the whole document.

    parse(parser, operand, level): returns the node with its meaning; None if it does not influence the result.
    matcher(compiler, predicate): evaluates the Predicate (path "") that parse may return.
    identity(operand): as for FieldOperator.
    """

    parse: Callable[[Parser, Any, Level], Node | None]
    matcher: Callable[[Compiler, Predicate], Matcher] | None = None
    identity: Callable[[Any], Any] | None = None
