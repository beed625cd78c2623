"""Rules by which writes are judged: a plan without the query's values, so that queries of one shape share them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import bson

from quaestor.model import Operation, Query
from quaestor.planning.plan import QueryPlan, Result, Window
from quaestor.planning.relevant_fields import Fields
from quaestor.query.encoding import OPTIONS
from quaestor.query.sorting import parse_sort

_MOST: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules of one shape of queries. What is not said here is as in QueryPlan.

    filtered: a predicate decides which records concern the query.
    exact: and nothing but that does.
    sort: empty if the query is not exact.
    projection: of an exact find, as BSON; empty: it has none.
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
    tied: Fields
    projection: bytes = b""

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Every namespace whose writes concern the query, its own first."""
        return (self.namespace, *self.foreign)


def rules_of(plan: QueryPlan) -> Rules:
    """The rules of a plan."""
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
        tied=plan.tied,
        projection=_projection(query) if exact and plan.result is Result.RECORDS else b"",
    )


def _projection(query: Query) -> bytes:
    """Of a find alone: a stage of a pipeline means something else by `$slice`. Under a collation it may compare by that."""
    plain = query.collation is None or query.collation.get("locale") == "simple"
    if query.operation is not Operation.FIND or not query.projection or not plain:
        return b""
    return bson.encode(query.projection, codec_options=OPTIONS)


class SharedRules:
    """Interning of rules: one object for equal ones.

    Starts anew when there are very many: sharing saves memory, nothing depends on it.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Rules, Rules] = {}

    def of(self, plan: QueryPlan) -> Rules:
        """The rules of a plan, one object for equal ones."""
        rules = rules_of(plan)
        if len(self._known) > _MOST:
            self._known.clear()
        return self._known.setdefault(rules, rules)
