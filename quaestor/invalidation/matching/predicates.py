"""Compiled predicates, kept for the filters in use.

A compiled filter takes several times the memory of the rest of a query. Most queries are tried rarely: the index finds them
just before they fire and end. A filter is therefore kept as BSON and compiled when it is first tried. The number of compiled
filters is bounded, except for filters that every write tries. A random one gives way, so that a round through more filters
than the bound still finds some compiled. Filters without a distinguishing index are tried together, and share their common
parts (shared_predicates.py).

A subscribed query lasts, and its first write would wait for the compilation. Its filter keeps the form that its announcement
was planned with.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

import bson

from quaestor.invalidation.matching.entities import Filter
from quaestor.invalidation.matching.shared_predicates import SharedPredicates
from quaestor.model import Document
from quaestor.planning.access_entries import SELECTIVE
from quaestor.query.ast import Conjunction, Disjunction, Negation, Node, Predicate
from quaestor.query.compile import compile_node, may_take_long
from quaestor.query.compiled import CompiledQuery
from quaestor.query.encoding import OPTIONS
from quaestor.query.normalise import normalise
from quaestor.query.parse import parse

_LARGEST_ANNOUNCED: Final = 1_024
"""Largest filter of a subscribed query, in bytes of BSON, that is compiled before its first write."""


def kept_compiled(predicate: CompiledQuery, source: int) -> int:
    """Number of predicates that a subscribed query keeps compiled: all of its filter, or none.

    The form has to be small, without regular expressions that take long.

    source: bytes of the filter.
    """
    return _predicates(predicate.root) if source <= _LARGEST_ANNOUNCED and not may_take_long(predicate.root) else 0


def _predicates(node: Node) -> int:
    match node:
        case Conjunction() | Disjunction():
            return sum(map(_predicates, node.members))
        case Negation():
            return _predicates(node.member)
        case Predicate(operator="$elemMatch"):
            return 1 + _predicates(node.operand)
    return 1


class Predicates:
    """Evaluator of filters.

    most: number of compiled filters to keep, beside the filters that every write tries.
    shared: the common parts of filters that are tried together.
    """

    __slots__ = ("_chance", "_kept", "most", "shared")

    def __init__(self, *, most: int = 50_000) -> None:
        self.most = most
        self.shared = SharedPredicates()
        self._kept: list[Filter] = []
        self._chance = Random(0)

    def announced(self, item: Filter, predicate: CompiledQuery) -> None:
        """Keep the compiled form of a subscribed query's filter until `ended`, if the filter is tried alone."""
        alone = item.access is not None and item.access.cost <= SELECTIVE
        if item.matches is None and alone and kept_compiled(predicate, len(item.source)):
            item.matches = predicate.matches

    def ended(self, item: Filter) -> None:
        """Forget the compiled form of a filter that no subscribed query uses any more."""
        if item.sides is None and item.access is not None:
            item.matches = None

    def holds(self, item: Filter, record: Document) -> bool:
        """Whether the record matches. Raises the exceptions of the predicate."""
        matches = item.matches
        if matches is None:
            condition: dict[str, Any] = bson.decode(item.source, OPTIONS)
            root = normalise(parse(condition))
            together = item.access is None or item.access.cost > SELECTIVE
            matches = item.matches = self.shared.compile(root) if together else compile_node(root)
            if item.access is not None:
                self._keep(item)
        return matches(record)

    def _keep(self, item: Filter) -> None:
        if len(self._kept) < self.most:
            self._kept.append(item)
            return
        place = self._chance.randrange(self.most)
        self._kept[place].matches = None
        self._kept[place] = item
