"""Compilation of the tree to functions: one-time decisions are made here, all others are closures.

A query that cannot match costs one call and one dictionary look-up. Conjunctions try their cheapest member first. A conjunction
of plain predicates is one function (one_function.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from quaestor.query.absent_fields import LEAST_COST, by_field, decided_at_once
from quaestor.query.allowance import counts_expressions, within_allowance
from quaestor.query.ast import Conjunction, Constant, Disjunction, Negation, Node, Predicate
from quaestor.query.fast_paths import paired_ranges, short_cut
from quaestor.query.identity import identity
from quaestor.query.one_function import one_function
from quaestor.query.operators import DOCUMENT_OPERATORS, FIELD_OPERATORS
from quaestor.query.paths import Matcher, Test, matcher

_COSTS: Final = {"$eq": 0, "$in": 1, "$exists": 1, "$regex": 6, "$elemMatch": 8, "$expr": 20, "$jsonSchema": 20}
_ORDINARY: Final = 2

_MOST_PARTS: Final = 256
_PARTS: Final[dict[bytes, Matcher]] = {}
"""Functions of costly parts of late, by identity."""

_Function = Callable[[Any], bool]


def compile_node(node: Node) -> Matcher:
    """Return a function that decides whether a document matches.

    The function raises UncertainMatchError when a regular expression could not be decided in time. The function is pure and may
    be called from several threads.
    """
    if not isinstance(node, Conjunction) or cost(node) < LEAST_COST:
        return _bounded(node)
    costly = {field: part for field, part in by_field(node).items() if cost(part) >= LEAST_COST}
    return _bounded(node) if not costly else _divided(node, costly)


def _divided(node: Conjunction, costly: Mapping[str, Conjunction]) -> Matcher:
    """Return the function of a conjunction whose costly parts are called only for documents that have their fields."""
    taken = {id(member) for part in costly.values() for member in part.members}
    others = Conjunction(tuple(member for member in node.members if id(member) not in taken))
    parts = [_part(field, part) for field, part in costly.items()]
    matches = conjunction_of([_bounded(others), *parts] if others.members else parts)
    shares = sum(map(may_take_long, (others, *costly.values()))) > 1  # one allowance for all of them
    return within_allowance(matches) if shares else matches


def _part(field: str, part: Conjunction) -> Matcher:
    """Return the function of a costly part. All queries with the rules of records share one: they differ in other parts."""
    name = identity(part)
    known = _PARTS.get(name)
    if known is None:
        known = decided_at_once(field, _bounded(part))
        if not counts_expressions():  # regular expressions count for each query that holds them
            if len(_PARTS) >= _MOST_PARTS:
                _PARTS.clear()
            _PARTS[name] = known
    return known


def _bounded(node: Node) -> Matcher:
    matches = _matcher(node)
    return within_allowance(matches) if may_take_long(node) else matches


def may_take_long(node: Node) -> bool:
    """Whether evaluating a node may compile regular expressions, or run the engine with the time limit."""
    match node:
        case Predicate(operator="$regex"):
            return bool(node.operand.bounded)
        case Predicate(operator="$expr" | "$jsonSchema"):
            return True
        case Predicate(operator="$elemMatch"):
            return may_take_long(node.operand)
        case Negation():
            return may_take_long(node.member)
        case Conjunction() | Disjunction():
            return any(map(may_take_long, node.members))
    return False


def _matcher(node: Node) -> Matcher:
    return short_cut(node, general_matcher) or general_matcher(node)


def general_matcher(node: Node) -> Matcher:
    """Return the function that `compile_node` makes, without a short cut for the node itself."""
    match node:
        case Predicate():
            return _predicate(node)
        case Conjunction():
            members = sorted(paired_ranges(node.members), key=cost)
            generated = one_function(members, _matcher, general_matcher)
            return generated or conjunction_of(list(map(_matcher, members)))
        case Disjunction():
            return disjunction_of([_matcher(member) for member in sorted(node.members, key=cost)])
        case Negation():
            inner = _matcher(node.member)
            return lambda document: not inner(document)
        case Constant():
            value = node.value
            return lambda _: value


def compile_test(node: Node) -> Test:
    """Return a function of one bare value, for `$elemMatch` over values: all its predicates have no path."""
    match node:
        case Predicate():
            test = FIELD_OPERATORS[node.operator].test
            if test is None:
                raise TypeError(f"{node.operator} has no meaning for a value without a path")
            return test(_COMPILER, node)
        case Conjunction():
            return conjunction_of([compile_test(member) for member in sorted(node.members, key=cost)])
        case Disjunction():
            return disjunction_of([compile_test(member) for member in sorted(node.members, key=cost)])
        case Negation():
            inner = compile_test(node.member)
            return lambda value: not inner(value)
        case Constant():
            constant = node.value
            return lambda _: constant


def cost(node: Node) -> int:
    """Return a rough measure of the cost of evaluating the node, for ordering members."""
    match node:
        case Predicate():
            return _COSTS.get(node.operator, _ORDINARY) + node.path.count(".")
        case Negation():
            return cost(node.member)
        case Conjunction() | Disjunction():
            return sum(map(cost, node.members))
        case Constant():
            return 0


class _Compiler:
    """Implements `operators.contract.Compiler`."""

    __slots__ = ()

    def matcher(self, node: Node) -> Matcher:
        return _matcher(node)

    def test(self, node: Node) -> Test:
        return compile_test(node)


_COMPILER: Final = _Compiler()


def _predicate(node: Predicate) -> Matcher:
    document_operator = DOCUMENT_OPERATORS.get(node.operator)
    if document_operator is not None and document_operator.matcher is not None:
        return document_operator.matcher(_COMPILER, node)
    operator = FIELD_OPERATORS[node.operator]
    if operator.matcher is not None:
        return operator.matcher(_COMPILER, node)
    if operator.test is None:
        raise TypeError(f"{node.operator} cannot be evaluated; parse() never yields it")
    return matcher(node.path, operator.test(_COMPILER, node), whole_arrays=operator.whole_arrays)


def conjunction_of(members: list[_Function]) -> _Function:
    """Return a function that holds where all of these hold; tries them in this order."""
    if not members:
        return lambda _: True
    if len(members) == 1:
        return members[0]
    first, second, *rest = members
    if not rest:
        return lambda document: first(document) and second(document)

    def every(document: Any) -> bool:
        for member in members:  # noqa: SIM110 - a generator costs more than the members
            if not member(document):
                return False
        return True

    return every


def disjunction_of(members: list[_Function]) -> _Function:
    """Return a function that holds where any of these holds; tries them in this order."""
    if not members:
        return lambda _: False
    if len(members) == 1:
        return members[0]
    first, second, *rest = members
    if not rest:
        return lambda document: first(document) or second(document)

    def some(document: Any) -> bool:
        for member in members:  # noqa: SIM110 - see above
            if member(document):
                return True
        return False

    return some
