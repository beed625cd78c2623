"""Predicates that several filters have in common, evaluated at most once on a record (predicate coalescence).

Filters that no index distinguishes are compiled from single predicates. All filters that hold a predicate share it, however
they combine it, and its result for the current record. Source: W. Wingerath, Scalable Push-Based Real-Time Queries, section
4: q1 = p1 and p2, q2 = p2 or p3 are three predicates, not four.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

from quaestor.query.allowance import within_allowance
from quaestor.query.ast import Conjunction, Disjunction, Negation, Node
from quaestor.query.compile import compile_node, conjunction_of, cost, disjunction_of, may_take_long
from quaestor.query.identity import identity
from quaestor.query.paths import Matcher


class _Shared:
    """Single predicate, with its latest result.

    moment: number of the record of that result, see SharedPredicates.
    """

    __slots__ = ("__weakref__", "matches", "moment", "result")

    def __init__(self, matches: Matcher) -> None:
        self.matches = matches
        self.moment = 0
        self.result = False


class SharedPredicates:
    """Single predicates by identity, kept while a compiled filter holds them. Not thread-safe.

    record: the current record. None: forget the results, because the next record may be changed and yet the same object.
    evaluated: number of predicates evaluated so far.
    """

    __slots__ = ("_known", "_moment", "evaluated", "record")

    def __init__(self) -> None:
        self._known: WeakValueDictionary[bytes, _Shared] = WeakValueDictionary()
        self._moment = 0
        self.record: Any = None
        self.evaluated = 0

    def __len__(self) -> int:
        return len(self._known)

    def compile(self, root: Node) -> Matcher:
        """Return a function that decides whether a record matches the normalised tree, equivalent to `compile_node`."""
        matches = self._combined(root)
        return within_allowance(matches) if may_take_long(root) else matches

    def _combined(self, node: Node) -> Matcher:
        match node:
            case Conjunction():
                return conjunction_of([self._combined(member) for member in sorted(node.members, key=cost)])
            case Disjunction():
                return disjunction_of([self._combined(member) for member in sorted(node.members, key=cost)])
            case Negation():
                inner = self._combined(node.member)
                return lambda record: not inner(record)
        return self._single(node)

    def _single(self, node: Node) -> Matcher:
        name = identity(node)
        shared = self._known.get(name)
        if shared is None:
            shared = self._known[name] = _Shared(compile_node(node))
        predicate = shared

        def holds(record: Any) -> bool:
            if record is not self.record:
                self.record = record
                self._moment += 1
            if predicate.moment != self._moment:
                self.evaluated += 1
                predicate.result = predicate.matches(record)
                predicate.moment = self._moment
            return predicate.result

        return holds
