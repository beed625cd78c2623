"""`$text` as an operator, and the text index that it uses. Manual: $text.

The filter may contain the definition: `with_text_index` writes it into the filter, so that it can be stored and sent.
Otherwise `bind` adds the index to the parsed filter. A `$text` without an index cannot be compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.query.ast import Conjunction, Disjunction, Negation, Node, Predicate
from quaestor.query.bson_order import STRING, type_bracket
from quaestor.query.operators.contract import Compiler, DocumentOperator, Level, Parser
from quaestor.query.paths import Matcher
from quaestor.query.shape import as_filter
from quaestor.query.text.index import DEFINITION, TextIndex
from quaestor.query.text.matching import Search

_STRINGS: Final = ("$search", "$language")
_SWITCHES: Final = ("$caseSensitive", "$diacriticSensitive")
_INDEX: Final = "$_index"
_TREES: Final = ("$and", "$or")


def with_text_index(filter_: Mapping[str, Any], definition: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the filter with the definition of the text index, from `list_indexes`, beside every `$search`.

    Returns the filter itself if there is nothing to add. mongod would refuse the result; `parse` accepts it.
    """
    if definition is None or not any(name == "$text" or name in _TREES for name in filter_):
        return filter_
    known = {name: definition[name] for name in DEFINITION if name in definition}
    result: dict[str, Any] = {}
    for name, value in filter_.items():
        if name == "$text" and isinstance(value, Mapping):
            result[name] = {**value, _INDEX: known}
        elif name in _TREES and isinstance(value, list):
            result[name] = [with_text_index(part, definition) if isinstance(part, Mapping) else part for part in value]
        else:
            result[name] = value
    return result


def bind(root: Node, index: TextIndex | None) -> Node:
    """Return the same filter, with its `$text` searching `index`.

    Raises:
        MalformedQueryError: there are two, or one in $nor or $not, or in a language that mongod does not know.
        UnsupportedQueryError: there is one without an index, or its language is not evaluated.
    """
    count = sum(1 for _ in _searches(root, negated=False))
    if not count:
        return root
    if count > 1:
        raise MalformedQueryError("a filter can hold only one $text")
    if search_of(root) is not None:
        return root
    if index is None:
        raise UnsupportedQueryError("$text without the definition of the collection's text index")
    return _bound(root, index)


def search_of(root: Node) -> Search | None:
    """Return the search of a bound filter, which scores the records."""
    predicate = next(_searches(root, negated=False), None)
    return predicate.operand if predicate is not None and isinstance(predicate.operand, Search) else None


def _searches(node: Node, *, negated: bool) -> Iterator[Predicate]:
    if isinstance(node, Predicate):
        if node.operator == "$text":
            if negated:
                raise MalformedQueryError("$text cannot stand in $nor")
            yield node
    elif isinstance(node, Negation):
        yield from _searches(node.member, negated=True)
    elif isinstance(node, Conjunction | Disjunction):
        for member in node.members:
            yield from _searches(member, negated=negated)


def _bound(node: Node, index: TextIndex) -> Node:
    if isinstance(node, Predicate) and node.operator == "$text":
        return replace(node, operand=Search(node.operand, index))
    if isinstance(node, Conjunction | Disjunction):
        return replace(node, members=tuple(_bound(member, index) for member in node.members))
    return node


def _parse(parser: Parser, operand: Any, level: Level) -> Node:
    if level is Level.ELEMENT:
        raise MalformedQueryError("$text can only be applied to the top-level document")
    fields = as_filter(operand)
    if fields is None:
        raise MalformedQueryError(f"$text must be a document, not {operand!r}")
    index: TextIndex | None = None
    for name, value in fields.items():
        if name in _STRINGS:
            if not isinstance(value, str) or type_bracket(value) != STRING:
                raise MalformedQueryError(f"{name} of $text must be a string, not {value!r}")
        elif name == _INDEX and isinstance(value, Mapping):
            index = TextIndex.of(value)
        elif name in _SWITCHES:
            if not isinstance(value, bool):
                raise MalformedQueryError(f"{name} of $text must be true or false, not {value!r}")
        else:
            raise MalformedQueryError(f"$text cannot hold {name!r}")
    if "$search" not in fields:
        raise MalformedQueryError("$text needs $search")
    source = {name: value for name, value in fields.items() if name != _INDEX}
    return Predicate("", "$text", source if index is None else Search(source, index))


def _matcher(compiler: Compiler, predicate: Predicate) -> Matcher:
    if not isinstance(predicate.operand, Search):
        raise UnsupportedQueryError("$text without the definition of the collection's text index")
    return predicate.operand.matches


def _identity(operand: Any) -> Any:
    if not isinstance(operand, Search):
        return operand
    index = operand.index
    weights = [[path, weight] for path, weight in index.weights]
    return [operand.source, weights, index.everything, index.default_language, index.override]


DOCUMENT_OPERATORS: Final = {"$text": DocumentOperator(parse=_parse, matcher=_matcher, identity=_identity)}
