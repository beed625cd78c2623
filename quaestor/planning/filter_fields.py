"""Paths of a record that a filter reads: changes elsewhere do not affect the match."""

from __future__ import annotations

from collections.abc import Iterable

from quaestor.errors import QueryError
from quaestor.query.ast import Conjunction, Disjunction, Negation, Node, Predicate
from quaestor.query.expressions import field_paths
from quaestor.query.text.index import TextIndex
from quaestor.query.text.matching import Search


def filter_paths(root: Node) -> frozenset[str] | None:
    """Return the dotted paths that decide whether a record matches, or None for all. O(size of the filter).

    `$jsonSchema` with more than `properties`, `$text` over all fields, and expressions with `$$ROOT` may read everything.
    """
    paths = frozenset(_paths_of(root))
    return None if None in paths else frozenset(path for path in paths if path is not None)


def _paths_of(node: Node) -> Iterable[str | None]:
    if isinstance(node, Predicate):
        yield from (node.path,) if node.path else _of_document(node)
    elif isinstance(node, Conjunction | Disjunction):
        for member in node.members:
            yield from _paths_of(member)
    elif isinstance(node, Negation):
        yield from _paths_of(node.member)


def _of_document(node: Predicate) -> Iterable[str | None]:
    """Return the paths that an operator on the whole record reads."""
    if node.operator == "$expr":
        try:
            return [path or None for path in field_paths(node.operand)]
        except QueryError:
            return [None]
    if node.operator == "$text" and isinstance(node.operand, Search):
        return searched_paths(node.operand.index) or [None]
    if node.operator == "$jsonSchema" and set(node.operand) == {"properties"}:
        return [name or None for name in node.operand["properties"]]
    return [None]


def searched_paths(index: TextIndex) -> frozenset[str] | None:
    """Return the paths that a text search reads: the weighted ones, and on the way to each the field with its language.

    None: the whole record.
    """
    if index.everything:
        return None
    paths = {index.override}
    for path, _ in index.weights:
        paths.add(path)
        parts = path.split(".")
        paths.update(".".join((*parts[:depth], index.override)) for depth in range(1, len(parts) + 1))
    return frozenset(paths)
