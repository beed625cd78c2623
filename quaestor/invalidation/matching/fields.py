"""Which parts of a record a query's result can show: a change elsewhere changes nothing.

A find with a projection shows only what it projects; what the filter and the sort read counts as well, since it decides
where the record stands. The comparison is of BSON bytes, so order of fields and numeric types count as they do for a
reader of the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import bson

from quaestor.errors import QueryError
from quaestor.invalidation.matching.partitioning import OPTIONS
from quaestor.invalidation.query.ast import Conjunction, Disjunction, Negation, Node, Predicate
from quaestor.invalidation.query.expressions import field_paths
from quaestor.invalidation.query.paths import is_array
from quaestor.model import Document, Query

Tree = dict[str, "Tree"]
"""Paths by component; an empty tree is everything below."""


@dataclass(frozen=True, slots=True)
class Fields:
    """What matters of a record.

    shown: paths whose values matter. hidden: if not None, everything matters but these, and `shown` in any case.
    """

    shown: tuple[str, ...]
    hidden: tuple[str, ...] | None = None

    def same(self, before: Document, after: Document) -> bool:
        """Whether nothing that matters differs. O(size of the records)."""
        if not _equal(_only(before, _tree(self.shown)), _only(after, _tree(self.shown))):
            return False
        return self.hidden is None or _equal(_without(before, _tree(self.hidden)), _without(after, _tree(self.hidden)))

    def describe(self) -> str:
        if self.hidden is None:
            return ", ".join(self.shown) or "none"
        return "all" if not self.hidden else f"all but {', '.join(self.hidden)}"


ALL = Fields((), ())


def fields_that_matter(query: Query, root: Node) -> Fields:
    """From filter, sort and projection. Whatever cannot be read off a path (`$expr`, computed fields) makes it all."""
    read = set(_paths_of(root))
    if None in read:
        return ALL
    needed = {path for path in read if path is not None} | {path for path, _ in query.sort}
    if not query.projection:
        return ALL
    switches = {path: value for path, value in query.projection.items() if isinstance(value, bool | int | float)}
    if len(switches) < len(query.projection) or any("$" in path for path in switches):
        return ALL
    shows = [path for path, on in switches.items() if on]
    if shows and (shows != ["_id"] or len(switches) == 1):
        return Fields(tuple(sorted(needed.union(shows) - {"_id"})))
    return Fields(tuple(sorted(needed)), tuple(sorted(path for path, on in switches.items() if not on)))


_ACCUMULATORS = frozenset(
    {"$addToSet", "$avg", "$count", "$first", "$last", "$max", "$mergeObjects", "$min", "$push", "$stdDevPop",
     "$stdDevSamp", "$sum"}
)  # fmt: skip


def fields_of_group(stages: Iterable[Document], root: Node) -> Fields:
    """What a pipeline reads of a record if, after sorting and unwinding, it groups: later stages see the groups only.

    stages: what follows the leading `$match`; root: its filter. ALL for everything else.
    """
    try:
        read = set(_paths_of(root))
        for stage in stages:
            ((name, operand),) = stage.items()
            if name == "$sort" and all(isinstance(direction, int | float) for direction in operand.values()):
                read.update(operand)
            elif name == "$unwind" and isinstance(operand, str):
                read.add(operand.removeprefix("$"))
            elif name == "$group":
                read.update(path for expression in _grouped(operand) for path in field_paths(expression))
                return ALL if None in read or "" in read else Fields(tuple(sorted(filter(None, read))))
            else:
                return ALL
    except (QueryError, ValueError, AttributeError):
        return ALL
    return ALL


def _grouped(group: Document) -> Iterable[Any]:
    """The expressions of a `$group`. Raises ValueError for accumulators that take more than one expression."""
    yield group.get("_id")
    for name, value in group.items():
        if name == "_id":
            continue
        ((accumulator, argument),) = value.items()
        if accumulator not in _ACCUMULATORS:
            raise ValueError(accumulator)
        if accumulator != "$count":
            yield argument


def _paths_of(node: Node) -> Iterable[str | None]:
    """The paths a filter reads; None among them if it may read anything."""
    if isinstance(node, Predicate):
        yield node.path or None
    elif isinstance(node, Conjunction | Disjunction):
        for member in node.members:
            yield from _paths_of(member)
    elif isinstance(node, Negation):
        yield from _paths_of(node.member)


def _tree(paths: Iterable[str]) -> Tree:
    tree: Tree = {}
    whole: list[Tree] = []
    for path in paths:
        below = tree
        for part in path.split("."):
            if part.isdigit():
                break
            below = below.setdefault(part, {})
        whole.append(below)
    for below in whole:
        below.clear()
    return tree


def _only(value: Any, tree: Tree) -> Any:
    if is_array(value):
        return [_only(element, tree) for element in value]
    if not isinstance(value, Mapping):
        return value
    return {name: _only(member, tree[name]) if tree[name] else member for name, member in value.items() if name in tree}


def _without(value: Any, tree: Tree) -> Any:
    if is_array(value):
        return [_without(element, tree) for element in value]
    if not isinstance(value, Mapping):
        return value
    return {
        name: _without(member, tree[name]) if name in tree else member
        for name, member in value.items()
        if name not in tree or tree[name]
    }


def _equal(a: Document, b: Document) -> bool:
    return bson.encode(a, codec_options=OPTIONS) == bson.encode(b, codec_options=OPTIONS)
