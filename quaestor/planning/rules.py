"""Rules by which writes are judged: a plan without the query's values, so that queries of one shape share them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quaestor.planning.plan import QueryPlan
from quaestor.planning.plan_parts import IndexOrder, RelevantFields, Result, Window
from quaestor.planning.relevant_fields import Fields, fields_of_paths
from quaestor.query.sorting import parse_sort

_MOST: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules of one shape of queries. For all other fields see QueryPlan.

    filtered: a predicate decides which records concern the query.
    by_predicate: only the predicate decides.
    exact: all other conditions are exact as well.
    sort: empty if the query is not judged by its predicate.
    order: the fields that the sort reads.
    index_keys: see Query.
    """

    namespace: str
    foreign: tuple[str, ...]
    filtered: bool
    by_predicate: bool
    exact: bool
    window: Window
    result: Result
    sort: tuple[tuple[str, int], ...]
    distinct_key: str
    relevant: RelevantFields
    index_order: IndexOrder
    index_keys: tuple[tuple[str, ...], ...]
    order: Fields
    shown: bytes = b""
    keeps_place: bool = False

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Every namespace whose writes concern the query, its own first."""
        return (self.namespace, *self.foreign)


def rules_of(plan: QueryPlan) -> Rules:
    """Return the rules of a plan."""
    query = plan.query
    sort = parse_sort(query.sort) if plan.by_predicate else ()
    return Rules(
        namespace=query.namespace,
        foreign=plan.namespaces[1:],
        filtered=plan.predicate is not None,
        by_predicate=plan.by_predicate,
        exact=plan.match == "exact",
        window=plan.window,
        result=plan.result,
        sort=sort,
        order=fields_of_paths(path for path, _ in sort),
        distinct_key=query.distinct_key or "",
        relevant=plan.relevant,
        index_order=plan.index_order,
        index_keys=query.index_keys,
        shown=plan.display.shown,
        keeps_place=plan.place.keeps_place,
    )


class SharedRules:
    """Interning of rules: one object for equal ones.

    The memory is cleared when there are very many: sharing only saves memory.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Rules, Rules] = {}

    def of(self, plan: QueryPlan) -> Rules:
        """Return the rules of a plan, one object for equal ones."""
        rules = rules_of(plan)
        if len(self._known) > _MOST:
            self._known.clear()
        return self._known.setdefault(rules, rules)
