"""`$all`, `$elemMatch`, `$size`. Manual: Array Query Operators.

`$all` is read as a conjunction of equalities (or `$regex`, or `$elemMatch`) on the same path, which has the same meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quaestor.errors import MalformedQueryError
from quaestor.query.ast import Conjunction, Constant, Node, Predicate
from quaestor.query.bson_order import REGEX, is_list, type_bracket
from quaestor.query.operators.contract import Compiler, FieldOperator, Level, Parser
from quaestor.query.operators.integers import integer
from quaestor.query.paths import Test, as_document, is_array, is_document
from quaestor.query.regex import Pattern
from quaestor.query.shape import as_filter, is_expression

_DOCUMENT_LEVEL: Final = frozenset(
    {"$and", "$or", "$nor", "$expr", "$jsonSchema", "$text", "$where", "$comment", "$alwaysTrue", "$alwaysFalse"}
    | {"$sampleRate", "$_internalSchemaXor", "$_internalSchemaCond"}
)


def _parse_size(parser: Parser, path: str, operand: Any, siblings: Mapping[str, Any], level: Level) -> Node:
    size = integer(operand, f"$size of {path!r}")
    if not 0 <= size < 1 << 31:
        raise MalformedQueryError(f"$size of {path!r} needs a non-negative 32-bit integer, not {operand!r}")
    return Predicate(path, "$size", size)


def _size(compiler: Compiler, predicate: Predicate) -> Test:
    size = predicate.operand
    return lambda value: is_array(value) and len(value) == size


def _parse_element(parser: Parser, path: str, operand: Any, siblings: Mapping[str, Any], level: Level) -> Node:
    if as_filter(operand) is None:
        raise MalformedQueryError(f"$elemMatch of {path!r} needs a document, not {operand!r}")
    if is_expression(operand, incomplete_dbref=True) and next(iter(operand)) not in _DOCUMENT_LEVEL:
        return Predicate(path, "$elemMatch", parser.field("", operand, Level.ELEMENT), elements="values")
    return Predicate(path, "$elemMatch", parser.document(operand, Level.ELEMENT), elements="documents")


def _element(compiler: Compiler, predicate: Predicate) -> Test:
    if predicate.elements == "values":
        test = compiler.test(predicate.operand)

        def any_value(value: Any) -> bool:
            if not is_array(value):
                return False
            for element in value:  # noqa: SIM110 - a generator costs more than the test
                if test(element):
                    return True
            return False

        return any_value

    matches = compiler.matcher(predicate.operand)

    def any_document(value: Any) -> bool:
        if not is_array(value):
            return False
        for element in value:
            if element.__class__ is dict:
                if matches(element):
                    return True
            # An array among the elements counts as a document whose keys are its positions.
            elif (is_document(element) or is_array(element)) and matches(as_document(element)):
                return True
        return False

    return any_document


def _parse_all(parser: Parser, path: str, operand: Any, siblings: Mapping[str, Any], level: Level) -> Node:
    if not is_list(operand):
        raise MalformedQueryError(f"$all of {path!r} needs an array, not {operand!r}")
    if not operand:
        return Constant(False)
    elements = [isinstance(member, Mapping) and next(iter(member), None) == "$elemMatch" for member in operand]
    if elements[0]:
        if not all(elements):
            raise MalformedQueryError(f"$all of {path!r} mixes $elemMatch with something else")
        return Conjunction(
            tuple(_parse_element(parser, path, member["$elemMatch"], member, level) for member in operand)
        )
    return Conjunction(tuple(_all_member(parser, path, member) for member in operand))


def _all_member(parser: Parser, path: str, member: Any) -> Node:
    first = next(iter(member), "") if isinstance(member, Mapping) else ""
    if first != "$not" and parser.is_field_operator(first):
        raise MalformedQueryError(f"$all of {path!r} cannot hold the operator {first!r}")
    if type_bracket(member) == REGEX:
        return Predicate(path, "$regex", Pattern.of_value(member))
    return Predicate(path, "$eq", member)


OPERATORS: Final = {
    "$all": FieldOperator(parse=_parse_all),
    "$elemMatch": FieldOperator(parse=_parse_element, test=_element, whole_arrays=True),
    "$size": FieldOperator(parse=_parse_size, test=_size, whole_arrays=True),
}
