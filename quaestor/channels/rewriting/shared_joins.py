"""Joins without parameters in the SELECTs of a body: equal joins of channels that are due together are executed once (V4).

In a plan such a join is one more relation. Conditions with a parameter stay in the plan of the channel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp

from quaestor.channels.rewriting.bounds import certain_conditions, with_bounds
from quaestor.channels.rewriting.definition import Relation
from quaestor.channels.rewriting.joining import arms, is_flat
from quaestor.channels.rewriting.reading import sources

_NAME: Final = "_j"
_TABLE: Final = "_a"
_LEAST_TABLES: Final = 2
_NEAR: Final = ("near", "near_sphere")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedJoin:
    """Join of the tables of one SELECT, without parameters.

    name: of its relation in the plan.
    arm: number of the SELECT.
    aliases, relations, datasets: of the joined tables, in the order of `query`.
    query: over tables that are named by their place in this order.
    key: equal for equal joins of any two channels.
    """

    name: str
    arm: int
    aliases: tuple[str, ...]
    relations: tuple[str, ...]
    datasets: tuple[str, ...]
    query: exp.Select
    key: str

    @property
    def title(self) -> str:
        """Words for the join."""
        return f"join of {', '.join(self.datasets)}"

    def by_table(self, by_relation: Mapping[str, Any]) -> dict[str, Any]:
        """Return what belongs to each table of `query`.

        by_relation: what belongs to each relation.
        """
        return {_placed(place): by_relation[relation] for place, relation in enumerate(self.relations)}


def shared_joins(tree: exp.Query, relations: Iterable[Relation]) -> tuple[SharedJoin, ...]:
    """Return the joins of a body that other channels may have as well.

    Conditions without parameters connect all tables, and one table holds new records only. The size of such a join follows
    the new records, not the datasets.
    """
    known = {relation.name: relation for relation in relations}
    selects = arms(with_bounds(tree)) if is_flat(tree) else []
    joins = (_join(number, select, known) for number, select in enumerate(selects))
    return tuple(join for join in joins if join is not None)


def with_joins(tree: exp.Query, joins: Iterable[SharedJoin]) -> exp.Query:
    """Return a body in which these joins are relations."""
    bounded = with_bounds(tree)
    selects = arms(bounded)
    for join in joins:
        _replace(selects[join.arm], join)
    return bounded  # type: ignore[return-value]


def asked_by_several(joins: Iterable[Collection[SharedJoin]]) -> frozenset[str]:
    """Return the keys of the joins that several channels have.

    joins: of each channel.
    """
    seen: set[str] = set()
    several: set[str] = set()
    for of_channel in joins:
        keys = {join.key for join in of_channel}
        several |= seen & keys
        seen |= keys
    return frozenset(several)


def _join(number: int, select: exp.Select, known: Mapping[str, Relation]) -> SharedJoin | None:
    tables = _tables(select, known)
    inner = [part for part in certain_conditions(select) if _is_shared(part)]
    if not any(known[table.name].new_only for table in tables) or not _connect(inner, tables):
        return None
    places = {table.alias_or_name: place for place, table in enumerate(tables)}
    query = exp.Select().from_(_placed(0))
    for place in range(1, len(tables)):
        query.append("joins", exp.Join(this=exp.table_(_placed(place)), kind="CROSS"))
    columns = {
        (places[column.table], column.name)
        for part in _rest(select)
        for column in part.find_all(exp.Column)
        if column.table in places
    }
    for place, name in sorted(columns):
        query.select(exp.alias_(_column(place, name), _renamed(place, name), quoted=True), copy=False)
    if not columns:
        query.select(exp.alias_(exp.Literal.number(1), _renamed(0, "")), copy=False)
    for condition in sorted((_moved(part, places) for part in inner), key=lambda part: part.sql()):
        query.where(condition, copy=False)
    joined = [known[table.name] for table in tables]
    reads = (f"{entry.dataset}{entry.columns.names}{entry.new_only}" for entry in joined)
    return SharedJoin(
        name=f"{_NAME}{number}",
        arm=number,
        aliases=tuple(places),
        relations=tuple(entry.name for entry in joined),
        datasets=tuple(entry.dataset for entry in joined),
        query=query,
        key=" ".join((query.sql("duckdb"), *reads)),
    )


def _tables(select: exp.Select, known: Mapping[str, Relation]) -> list[exp.Table]:
    """Return the tables of a SELECT in an order that does not depend on their aliases; none: its join cannot be shared."""
    joins = select.args.get("joins") or []
    is_plain = not any(join.side or join.method or join.args.get("using") for join in joins)
    is_nested = any(node is not select for node in select.find_all(exp.Query))
    tables = [source for source in sources(select) if isinstance(source, exp.Table)]
    if not is_plain or is_nested or len(tables) < _LEAST_TABLES:
        return []
    return sorted(tables, key=lambda table: (known[table.name].dataset, known[table.name].new_only))


def _is_shared(condition: exp.Expr) -> bool:
    """Whether a condition has one value in all channels of one instant. Parameters and the present time have several."""
    return condition.find(exp.Placeholder) is None and condition.find(exp.Column) is not None


def _connect(conditions: Iterable[exp.Expr], tables: Sequence[exp.Table]) -> bool:
    """Whether equalities, or tests of nearness, connect all tables."""
    groups = [{table.alias_or_name} for table in tables]
    for condition in conditions:
        part = condition.unnest()
        if isinstance(part, exp.EQ) or (isinstance(part, exp.Anonymous) and part.name.lower() in _NEAR):
            named = {column.table for column in part.find_all(exp.Column)}
            touched = set[str]().union(*(group for group in groups if group & named))
            groups = [group for group in groups if not group & named] + [touched]
    return len(groups) == 1


def _rest(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the parts of a SELECT that its join does not contain."""
    yield from select.expressions
    yield from (part for part in certain_conditions(select) if not _is_shared(part))
    yield from (select.args[clause] for clause in ("group", "having", "order") if select.args.get(clause) is not None)


def _replace(select: exp.Select, join: SharedJoin) -> None:
    """Put the relation of a join into the place of the tables."""
    places = {alias: place for place, alias in enumerate(join.aliases)}
    outer = [part.copy() for part in certain_conditions(select) if not _is_shared(part)]
    select.set("from_", exp.From(this=exp.alias_(exp.table_(join.name), join.name, table=True)))
    select.set("joins", None)
    select.set("where", exp.Where(this=exp.and_(*outer)) if outer else None)
    for column in list(select.find_all(exp.Column)):
        if column.table in places:
            name = _renamed(places[column.table], column.name)
            column.replace(exp.column(exp.to_identifier(name, quoted=True), table=join.name))


def _moved(condition: exp.Expr, places: Mapping[str, int]) -> exp.Expr:
    """Return a condition over the tables of a join. Sides of an equality are sorted."""

    def moved(node: exp.Expr) -> exp.Expr:
        return _column(places[node.table], node.name) if isinstance(node, exp.Column) else node

    whole = condition.transform(moved)
    for equal in whole.find_all(exp.EQ):
        left, right = sorted((equal.this, equal.expression), key=lambda side: side.sql())
        equal.set("this", left)
        equal.set("expression", right)
    return whole


def _placed(place: int) -> str:
    return f"{_TABLE}{place}"


def _column(place: int, name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True), table=_placed(place))


def _renamed(place: int, name: str) -> str:
    """Return the name that a column has in the relation of a join."""
    return f"{_placed(place)}_{name}"
