"""`$and`, `$or`, `$nor` on documents, `$not` on a field. Manual: Logical Query Operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quaestor.errors import MalformedQueryError
from quaestor.query.ast import Conjunction, Disjunction, Negation, Node, Predicate
from quaestor.query.bson_order import REGEX, is_list, type_bracket
from quaestor.query.operators.contract import DocumentOperator, FieldOperator, Level, Parser
from quaestor.query.regex import Pattern
from quaestor.query.shape import as_filter


def _members(parser: Parser, name: str, operand: Any, level: Level) -> tuple[Node, ...]:
    if not is_list(operand) or not operand:
        raise MalformedQueryError(f"{name} needs a non-empty array of filters, not {operand!r}")
    return tuple(parser.document(member, level) for member in operand)


def _parse_and(parser: Parser, operand: Any, level: Level) -> Node:
    return Conjunction(_members(parser, "$and", operand, level))


def _parse_or(parser: Parser, operand: Any, level: Level) -> Node:
    return Disjunction(_members(parser, "$or", operand, level))


def _parse_nor(parser: Parser, operand: Any, level: Level) -> Node:
    return Negation(Disjunction(_members(parser, "$nor", operand, level)))


def _parse_not(parser: Parser, path: str, operand: Any, siblings: Mapping[str, Any], level: Level) -> Node:
    if type_bracket(operand) == REGEX:
        return Negation(Predicate(path, "$regex", Pattern.of_value(operand)))
    operators = as_filter(operand)
    if operators is None:
        raise MalformedQueryError(f"$not of {path!r} needs operators or a regular expression, not {operand!r}")
    if not operators:
        raise MalformedQueryError(f"$not of {path!r} cannot be empty")
    return Negation(parser.field(path, operators, level))


DOCUMENT_OPERATORS: Final = {
    "$and": DocumentOperator(parse=_parse_and),
    "$or": DocumentOperator(parse=_parse_or),
    "$nor": DocumentOperator(parse=_parse_nor),
}
OPERATORS: Final = {"$not": FieldOperator(parse=_parse_not)}
