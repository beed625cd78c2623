"""Compilation of a channel: one plan of a run for all subscriptions, with relations bounded by the run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp

from quaestor.channels.rewriting.bounds import needs_new_only, with_bounds
from quaestor.channels.rewriting.definition import ChannelDefinition, Parameter, Relation, Shape
from quaestor.channels.rewriting.joining import SUBSCRIPTIONS, TARGET, arms, is_flat, is_parameter, joined
from quaestor.channels.rewriting.parameters import name_of, typed
from quaestor.channels.rewriting.reading import columns_of, parameter_column, read
from quaestor.channels.rewriting.relevance import Condition, relevance
from quaestor.channels.rewriting.shared_joins import SharedJoin, shared_joins, with_joins
from quaestor.channels.rewriting.spatial import check_calls, near_pairs, with_cells, with_exact_tests
from quaestor.continuous.compilation import compile_query
from quaestor.continuous.sql.current_time import T
from quaestor.continuous.sql.refusals import QueryRefusedError
from quaestor.tables.schema import Column, Schema, Type

FEW_PAIRS: Final = 20_000
"""Pairs up to which the exact test alone is quicker than cells."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Query of one run.

    expression: for an executor; its first column is the number of the parameters.
    reasons: choices, each with its reason.
    """

    expression: exp.Query
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledChannel:
    """Channel, compiled.

    parameters: with types.
    columns: of a record.
    tree: body with relations in place of datasets.
    difference: query of the rows that entered between two runs, for a channel EVERY INSTANT.
    relevant: for each SELECT, the conditions that new records must fulfil; none: a run may have results without new records.
    subscribed: whether the plan joins subscriptions; not so for an ordinary query.
    joins: parts of the plan that other channels may have as well.
    """

    definition: ChannelDefinition
    parameters: tuple[Parameter, ...]
    columns: tuple[str, ...]
    relations: tuple[Relation, ...]
    tree: exp.Query
    difference: exp.Query | None = None
    relevant: tuple[tuple[Condition, ...], ...] = ()
    subscribed: bool = True
    joins: tuple[SharedJoin, ...] = ()

    @property
    def individual(self) -> bool:
        """Whether results belong to single subscriptions: what a DISTINCT channel has delivered differs within a group."""
        return self.definition.distinct or not self.definition.grouped

    def plan(self, sizes: Mapping[str, int], joins: Collection[SharedJoin] = ()) -> Plan:
        """Return the plan of a run.

        sizes: number of records of each relation, the different parameters of the subscriptions and `joins` included.
        joins: executed already, as relations of the plan.
        """
        reasons = list(self._reasons(sizes))
        if self.difference is not None:
            return Plan(self.difference, tuple(reasons))
        reasons += [f"{join.title}: executed once for the channels of this instant that have it" for join in joins]
        tree = with_joins(self.tree, joins) if joins else self.tree.copy()
        for select in arms(tree):
            reasons += _choose_cells(select, sizes)
        query = joined(tree, len(self.parameters)) if self.subscribed else tree
        return Plan(with_exact_tests(with_bounds(query)), tuple(reasons))  # type: ignore[arg-type]

    def explanation(self, sizes: Mapping[str, int]) -> list[str]:
        """Return the choices of a plan, a sentence a line."""
        return list(self.plan(sizes).reasons)

    def _reasons(self, sizes: Mapping[str, int]) -> Iterator[str]:
        for relation in self.relations:
            size = f"{sizes.get(relation.name, 0)} records"
            if relation.versions:
                yield f"{relation.dataset}: all versions up to the run ({size}), because the channel is EVERY INSTANT"
            elif relation.new_only:
                yield f"{relation.dataset}: only files of (previous, current] ({size}), because every result needs is_new"
            else:
                yield f"{relation.dataset}: snapshot at the run's instant ({size}), because older records count too"
        if not self.subscribed:
            return
        yield from self._relevance()
        number = sizes.get(SUBSCRIPTIONS, 0)
        kind = "different parameters"
        equal = any(is_parameter(side) for part in self.tree.find_all(exp.EQ) for side in (part.this, part.expression))
        if not self.definition.distinct and self.individual:
            yield "results of single subscriptions, because the channel is UNGROUPED"
        elif self.definition.distinct:
            yield "results of single subscriptions, because DISTINCT compares with what each of them has received"
        if not self.parameters:
            yield "every subscription gets every result, because the channel has no parameters"
        elif equal:
            yield f"{number} {kind}: hash join, because the body compares a parameter by ="
        else:
            yield f"{number} {kind}: nested loop, because the body compares no parameter by ="
        if self.difference is None and not is_flat(self.tree):
            yield "the body is evaluated for each different parameter, because it aggregates or limits all its rows"

    def _relevance(self) -> Iterator[str]:
        datasets = {relation.name: relation.dataset for relation in self.relations}
        for number, conditions in enumerate(self.relevant, 1):
            needed = " and ".join(
                f"a new record of {datasets[entry.relation]}{f' with {entry.text}' if entry.text else ''}"
                for entry in conditions
            )
            arm = f"SELECT {number} of {len(self.relevant)}: " if len(self.relevant) > 1 else ""
            yield f"{arm}without {needed} a run reads nothing else and executes no plan, because every result needs one"


def plan_of_join(join: SharedJoin, sizes: Mapping[str, int]) -> exp.Query:
    """Return the query that executes a shared join. sizes: number of records of each relation."""
    query = join.query.copy()
    for _ in _choose_cells(query, join.by_table(sizes)):
        pass  # the reasons belong to an explanation, which names no shared join
    return with_exact_tests(query)  # type: ignore[return-value]


def compile_channel(definition: ChannelDefinition, datasets: Mapping[str, Shape]) -> CompiledChannel:
    """Compile a channel against the shapes of the datasets, by name. Raises QueryRefusedError."""
    return _compiled(definition, datasets, subscribed=True)


def compile_ordinary(text: str, datasets: Mapping[str, Shape]) -> CompiledChannel:
    """Compile a query of an analyst: every record is new, because the previous time is 1970. Raises QueryRefusedError."""
    return _compiled(ChannelDefinition(name="", body=text), datasets, subscribed=False)


def _compiled(definition: ChannelDefinition, datasets: Mapping[str, Shape], *, subscribed: bool) -> CompiledChannel:
    tree = read(definition, datasets, ordinary=not subscribed)
    check_calls(tree)
    parameters = typed(definition, tree, datasets)
    columns = tuple(tree.named_selects)
    for name in columns:
        if name.lower() == TARGET:
            raise QueryRefusedError(1, 1, f"a column is named {name!r}", "give the column another name by AS")
    relations = _with_relations(tree, datasets, versions=definition.every_instant)
    return CompiledChannel(
        definition=definition,
        parameters=parameters,
        columns=columns,
        relations=relations,
        tree=tree,
        difference=_difference(tree, parameters, relations) if definition.every_instant else None,
        relevant=relevance(tree, {relation.name: relation.columns for relation in relations if relation.new_only}),
        subscribed=subscribed,
        joins=shared_joins(tree, relations) if subscribed and not definition.every_instant else (),
    )


def _with_relations(tree: exp.Query, datasets: Mapping[str, Shape], *, versions: bool) -> tuple[Relation, ...]:
    """Rename the tables of a tree to relations, and return these."""
    uses: dict[tuple[str, bool], list[exp.Table]] = {}
    for table in tree.find_all(exp.Table):
        uses.setdefault((name_of(table, datasets), not versions and needs_new_only(table)), []).append(table)
    relations = []
    for number, ((dataset, new_only), tables) in enumerate(uses.items()):
        name = f"_r{number}"
        schema = datasets[dataset].schema
        read_columns = {column.lower() for table in tables for column in columns_of(tree, table.alias_or_name)}
        columns = tuple(c for c in schema.columns if c.name.lower() in read_columns or c.name in schema.key)
        for table in tables:
            table.set("this", exp.to_identifier(name))
        relations.append(
            Relation(
                name=name, dataset=dataset, columns=Schema(columns, schema.key), new_only=new_only, versions=versions
            )
        )
    return tuple(relations)


def _choose_cells(select: exp.Select, sizes: Mapping[str, int]) -> Iterator[str]:
    """Add cells to the spatial predicates of a SELECT where they pay; yield the reasons."""
    names = {table.alias_or_name: table.name for table in select.find_all(exp.Table) if table.parent_select is select}
    cells: set[str] = set()
    for number, pair in enumerate(list(near_pairs(select))):
        if cells & set(pair.tables):
            continue
        first, second = sorted(pair.tables, key=lambda alias: sizes.get(names[alias], 0))
        few, many = (sizes.get(names[alias], 0) for alias in (first, second))
        if few * many <= FEW_PAIRS:
            yield f"near({first}, {second}): exact test of all {few * many} pairs, because they are few"
            continue
        cells |= set(pair.tables)
        with_cells(select, pair, first, number)
        yield (
            f"near({first}, {second}): hash join on cells of the radius, then the exact test, because {few * many} pairs are "
            f"many; {first} is repeated for adjacent cells, because it is smaller"
        )


def _difference(tree: exp.Query, parameters: tuple[Parameter, ...], relations: tuple[Relation, ...]) -> exp.Query:
    """Return the query of the rows that entered at any instant between two runs: the rules of continuous queries."""
    if not is_flat(tree):
        raise QueryRefusedError(1, 1, "the body aggregates or limits its rows", "leave EVERY INSTANT out")
    query: Any = with_exact_tests(joined(tree, len(parameters))).transform(
        lambda node: exp.CurrentTimestamp() if isinstance(node, exp.Placeholder) and node.name == T else node
    )
    catalogue = {
        relation.name: Schema((*relation.columns.columns, Column("deleted", Type.BOOL)), relation.columns.key)
        for relation in relations
    }
    values = (Column(parameter_column(i), entry.type or Type.TEXT) for i, entry in enumerate(parameters))
    catalogue[SUBSCRIPTIONS] = Schema((Column(TARGET, Type.BIGINT), *values))
    try:
        return compile_query(query.sql("duckdb"), catalogue).first_only
    except QueryRefusedError as error:
        raise QueryRefusedError(0, 0, error.reason, error.remedy) from error
