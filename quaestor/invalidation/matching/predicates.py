"""Compiled predicates, kept for the filters in use.

A compiled filter takes several times the memory of the rest of a query. Most queries are tried rarely: the index finds them
just before they fire and end. A filter is therefore kept as BSON and compiled when it is first tried. The number of compiled
filters is bounded, except for filters that every write tries. A random one gives way, so that a round through more filters
than the bound still finds some compiled. Filters without a distinguishing index are tried together, and share their common
parts (shared_predicates.py).

A subscribed query lasts, and its first write would wait for the compilation. Its filter is therefore compiled when the query
is announced, and stays compiled until the query ends. Large filters are the exception, unless nearly every write tries them.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final, NamedTuple

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

_LARGEST_ANNOUNCED: Final = 2_048
"""Largest filter of a subscribed query, in bytes of BSON, that is compiled before its first write. The rules of records, which
every live query of a client contains, take 900 bytes and more."""


class KeptForm(NamedTuple):
    """Size of the compiled form of a subscribed query's filter.

    predicates: number of its single predicates; 0: the form is not kept.
    long: number of the predicates that run an expression, a schema or the engine with the time limit.
    """

    predicates: int
    long: int


def kept_compiled(predicate: CompiledQuery, source: int, *, broad: bool) -> KeptForm:
    """Return the compiled form that a subscribed query keeps: all of its filter, or nothing.

    source: bytes of the filter.
    broad: nearly every write tries the filter.
    """
    return _form(predicate.root) if _stays_compiled(source, broad=broad) else KeptForm(0, 0)


def _form(node: Node) -> KeptForm:
    match node:
        case Conjunction() | Disjunction():
            forms = list(map(_form, node.members))
            return KeptForm(sum(form.predicates for form in forms), sum(form.long for form in forms))
        case Negation():
            return _form(node.member)
        case Predicate(operator="$elemMatch"):
            inner = _form(node.operand)
            return KeptForm(1 + inner.predicates, inner.long)
    return KeptForm(1, may_take_long(node))


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
        """Compile a subscribed query's filter, so that no write waits for it, and keep the form until `ended`."""
        if item.matches is None and _stays_compiled(len(item.source), broad=item.broad):
            item.matches = self.shared.compile(predicate.root) if _together(item) else predicate.matches

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
            matches = item.matches = self.shared.compile(root) if _together(item) else compile_node(root)
            if item.access is not None:
                self._keep(item)
        return matches(record)

    def _keep(self, item: Filter) -> None:
        if len(self._kept) < self.most:
            self._kept.append(item)
            return
        place = self._chance.randrange(self.most)
        former = self._kept[place]
        if former.sides is None or not _stays_compiled(len(former.source), broad=former.broad):
            former.matches = None
        self._kept[place] = item


def _stays_compiled(source: int, *, broad: bool) -> bool:
    """Whether a subscribed query keeps the form of its filter. See `kept_compiled`."""
    return broad or source <= _LARGEST_ANNOUNCED


def _together(item: Filter) -> bool:
    """Whether most writes try the filter, so that it shares its predicates with others."""
    return item.access is None or item.access.cost > SELECTIVE
