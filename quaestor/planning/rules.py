"""What of a plan is needed to judge writes, without the query's values: queries of one shape share one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quaestor.planning.plan import QueryPlan, Result, Window
from quaestor.planning.relevant_fields import Fields
from quaestor.query.sorting import parse_sort

_MOST: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """filtered: a predicate decides which records concern the query.
    exact: and nothing but that does.

    The rest as in QueryPlan.

    sort: empty if the query is not exact.
    """

    namespace: str
    foreign: tuple[str, ...]
    filtered: bool
    exact: bool
    window: Window
    result: Result
    sort: tuple[tuple[str, int], ...]
    distinct_key: str
    fields: Fields
    visible: Fields
    placing: Fields

    @property
    def namespaces(self) -> tuple[str, ...]:
        return (self.namespace, *self.foreign)


def rules_of(plan: QueryPlan) -> Rules:
    query = plan.query
    exact = plan.match == "exact"
    return Rules(
        namespace=query.namespace,
        foreign=plan.namespaces[1:],
        filtered=plan.predicate is not None,
        exact=exact,
        window=plan.window,
        result=plan.result,
        sort=parse_sort(query.sort) if exact else (),
        distinct_key=query.distinct_key or "",
        fields=plan.fields,
        visible=plan.visible,
        placing=plan.placing,
    )


class SharedRules:
    """One object for equal rules. Starts anew when there are very many: sharing saves memory, nothing depends on it."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Rules, Rules] = {}

    def of(self, plan: QueryPlan) -> Rules:
        rules = rules_of(plan)
        if len(self._known) > _MOST:
            self._known.clear()
        return self._known.setdefault(rules, rules)
