"""`$in` and `$nin`. Manual: $in, $nin.

A regular expression in the list is matched like `$regex`; every other value is compared like `$eq`. The list is split
accordingly, so that an index finds equalities and prefixes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bson import Int64, ObjectId

from quaestor.errors import MalformedQueryError
from quaestor.query.ast import Disjunction, Negation, Node, Predicate
from quaestor.query.bson_order import MISSING, REGEX, is_list, order_key, type_bracket
from quaestor.query.operators.contract import Compiler, FieldOperator, Level, Parser
from quaestor.query.paths import Test
from quaestor.query.regex import Pattern
from quaestor.query.shape import is_expression

_HASHABLE_AS_THEY_ARE: Final = frozenset({int, float, str, ObjectId})


def membership_test(members: tuple[Any, ...]) -> Test:
    """Return a test whether a value equals one of these (no regular expression to match among them). O(size of the value)."""
    keys = frozenset(order_key(member) for member in members)
    with_null = None in members
    # Numbers, strings and ObjectIds hash as themselves; sets of them need no key per value.
    plain = frozenset(
        member
        for member in members
        if member.__class__ in _HASHABLE_AS_THEY_ARE or member.__class__ is Int64
        if member == member
    )

    def member_of(value: Any) -> bool:
        if value.__class__ in _HASHABLE_AS_THEY_ARE and value in plain:
            return True
        if value is MISSING:
            return with_null
        return order_key(value) in keys

    if len(plain) < len(keys):
        return member_of

    def plain_member_of(value: Any) -> bool:
        if value.__class__ in _HASHABLE_AS_THEY_ARE:
            return value in plain
        return value is not MISSING and order_key(value) in keys

    return plain_member_of


def _members(path: str, name: str, operand: Any) -> Node:
    if not is_list(operand):
        raise MalformedQueryError(f"{name} of {path!r} needs an array, not {operand!r}")
    plain, patterns = [], []
    for member in operand:
        if is_expression(member):
            raise MalformedQueryError(f"{name} of {path!r} cannot hold the operator {next(iter(member))!r}")
        if type_bracket(member) == REGEX:
            patterns.append(Pattern.of_value(member))
        else:
            plain.append(member)
    equalities = Predicate(path, "$in", tuple(plain))
    if not patterns:
        return equalities
    return Disjunction((equalities, *(Predicate(path, "$regex", pattern) for pattern in patterns)))


def _parse_in(parser: Parser, path: str, operand: Any, siblings: Mapping[str, Any], level: Level) -> Node:
    return _members(path, "$in", operand)


def _parse_not_in(parser: Parser, path: str, operand: Any, siblings: Mapping[str, Any], level: Level) -> Node:
    return Negation(_members(path, "$nin", operand))


def _membership(compiler: Compiler, predicate: Predicate) -> Test:
    return membership_test(predicate.operand)


OPERATORS: Final = {
    "$in": FieldOperator(parse=_parse_in, test=_membership),
    "$nin": FieldOperator(parse=_parse_not_in),
}
