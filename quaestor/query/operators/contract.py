"""The contract of operators: how an operand is read, and how it is evaluated. The tables are in `operators/__init__.py`.

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
    """The place of an operator in the filter: some are only allowed in one place."""

    TOP = "the filter itself, or $and, $or, $nor directly below it"
    ELEMENT = "inside $elemMatch: the documents are elements of an array"


class Parser(Protocol):
    """The parser as operators with filters inside see it."""

    def document(self, source: Any, level: Level) -> Node:
        """Read a filter: a document of fields and document operators."""

    def field(self, path: str, source: Mapping[str, Any], level: Level) -> Node:
        """Read the operators that apply to one path."""

    def is_field_operator(self, name: Any) -> bool:
        """Whether an operator on a path has this name."""


class Compiler(Protocol):
    """The compiler as operators with filters inside see it."""

    def matcher(self, node: Node) -> Matcher:
        """A function of a document."""

    def test(self, node: Node) -> Test:
        """A function of one bare value, for predicates without a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldOperator:
    """An operator on a path.

    parse(parser, path, operand, siblings, level): the node it means, or None if it means nothing by itself
    ($options). `siblings` is the whole document that the operator stands in. Raises MalformedQueryError or
    UnsupportedQueryError. test(compiler, predicate): a function of one value.

    whole_arrays: an array in the last place of the path is one value.
    matcher: if set, evaluates the predicate on the whole document instead of `test` (then it cannot stand in
        $elemMatch over bare values). identity(operand): the operand reduced to what distinguishes it, as a BSON
        value; None: the operand is one itself.
    """

    parse: Callable[[Parser, str, Any, Mapping[str, Any], Level], Node | None]
    test: Callable[[Compiler, Predicate], Test] | None = None
    whole_arrays: bool = False
    matcher: Callable[[Compiler, Predicate], Matcher] | None = None
    identity: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentOperator:
    """An operator on the whole document.

    parse(parser, operand, level): the node it means; None if it has no influence on the result.
    matcher(compiler, predicate): evaluates the Predicate (path "") that parse may return.
    identity(operand): as for FieldOperator.
    """

    parse: Callable[[Parser, Any, Level], Node | None]
    matcher: Callable[[Compiler, Predicate], Matcher] | None = None
    identity: Callable[[Any], Any] | None = None
