"""Compiled predicates, kept for those that are in use.

A compiled filter takes several times the memory of everything else about a query, and most queries are tried rarely:
the index finds them when they are about to fire, and then they are gone. So a filter is kept as BSON and compiled when
it is first tried. At most so many compiled ones are kept, besides those that every write tries; which one gives way is
random, so that even a round through more filters than are kept finds its share. Filters that are tried together, because no
index tells them apart, share what they have in common (shared_predicates.py).
"""

from __future__ import annotations

from random import Random
from typing import Any

import bson

from quaestor.invalidation.matching.entities import Filter
from quaestor.invalidation.matching.shared_predicates import SharedPredicates
from quaestor.model import Document
from quaestor.planning.access_entries import SELECTIVE
from quaestor.query.compile import compile_node
from quaestor.query.encoding import OPTIONS
from quaestor.query.normalise import normalise
from quaestor.query.parse import parse


class Predicates:
    """Evaluator of filters.

    most: how many compiled ones to keep of those that need not be at hand.
    shared: the parts of filters that many records lead to.
    """

    __slots__ = ("_chance", "_kept", "most", "shared")

    def __init__(self, *, most: int = 50_000) -> None:
        self.most = most
        self.shared = SharedPredicates()
        self._kept: list[Filter] = []
        self._chance = Random(0)

    def holds(self, item: Filter, record: Document) -> bool:
        """Whether the record matches. Raises what the predicate raises."""
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
