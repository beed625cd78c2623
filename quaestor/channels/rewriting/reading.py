"""Body of a channel to a tree: parameters are placeholders, active functions are columns, each column names its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.qualify import qualify

from quaestor.channels.rewriting.definition import ChannelDefinition, Kind, Shape
from quaestor.channels.rewriting.spatial_functions import SPATIAL
from quaestor.continuous.sql.current_time import NOW_FUNCTIONS, with_placeholders
from quaestor.continuous.sql.functions import ACCEPTED, INTERVALS, refuse_functions_outside
from quaestor.continuous.sql.parsing import parsed, refuse_placeholders, refuse_randomness
from quaestor.continuous.sql.refusals import QueryRefusedError, refusal
from quaestor.tables.schema import TS, Schema, Type

PREVIOUS: Final = "_previous"
CURRENT: Final = "_current"
"""Columns of a relation: the bounds of the run for the partition of the record."""
IS_NEW: Final = "_is_new"
"""Name of the function that `is_new` becomes; its argument is the instant of the record."""
_HIDDEN: Final = frozenset({TS, PREVIOUS, CURRENT, "_deleted"})
_ACTIVE: Final = {"active_timestamp": TS, "previous_channel_time": PREVIOUS, "current_channel_time": CURRENT}
_NAMED: Final = frozenset({"is_new", *_ACTIVE, *SPATIAL, *INTERVALS, *NOW_FUNCTIONS})
"""Accepted functions without a node of their own."""
_OF_DUCKDB: Final[tuple[type[exp.Expr], ...]] = (
    exp.ArrayContains, exp.Chr, exp.DateAdd, exp.DayOfWeek, exp.IsNan, exp.JSONExtract, exp.RegexpReplace, exp.SHA2,
    exp.TimeToStr, exp.TimeToUnix, exp.Unicode, exp.UnixToTime,
)  # fmt: skip
"""Functions that Spark does not have, or has with other values."""
_SQL_TYPES: Final = {
    Type.POINT: "STRUCT(x DOUBLE, y DOUBLE)",
    Type.JSON: "TEXT",
    Type.BYTES: "BLOB",
    Type.DECIMAL: "DECIMAL(38, 12)",
}


def parameter_column(number: int) -> str:
    """Return the column of subscriptions that holds a parameter."""
    return f"param{number}"


def read(definition: ChannelDefinition, shapes: Mapping[str, Shape], *, ordinary: bool = False) -> exp.Query:
    """Return the tree of a body. Parameters are placeholders named `param0` and so on; current time is the placeholder `t`.

    ordinary: whether this is a query of an analyst, which may use functions that only DuckDB has.

    Raises QueryRefusedError.
    """
    tree = parsed(definition.body, "duckdb", otherwise=("the body is not one SELECT", "write one SELECT"))
    _refuse(tree, _OF_DUCKDB if ordinary else ())
    tree = _without_with(tree)
    _name_tables(tree, shapes)
    _resolve_active_functions(tree, definition, shapes)
    _resolve_parameters(tree, definition)
    _expand_records(tree, shapes)
    tree = with_placeholders(tree)
    written = tree.named_selects
    try:
        tree = qualify(
            tree,
            schema=_types(shapes),
            dialect="duckdb",
            quote_identifiers=False,
            identify=False,
            validate_qualify_columns=True,
        )
    except OptimizeError as error:
        message = str(error).split("\n")[0]
        raise QueryRefusedError(
            0, 0, f"the query does not fit the datasets: {message}", "name columns that the datasets have"
        ) from error
    _name_results(tree, written)
    names = [name.lower() for name in written]
    for name in names:
        if names.count(name) > 1:
            raise refusal(tree, f"two columns of the result are named {name!r}", "give one column another name by AS")
    return tree


def columns_of(tree: exp.Expr, alias: str) -> set[str]:
    """Return the names of the columns that a tree reads from the table with this alias."""
    return {column.name for column in tree.find_all(exp.Column) if column.table == alias}


def source_of(node: exp.Expr, alias: str) -> exp.Table | None:
    """Return the table with this alias in the SELECT around a node, or in a SELECT around that one."""
    select = node.parent_select
    while select is not None:
        for source in sources(select):
            if source.alias_or_name.lower() == alias.lower():
                return source if isinstance(source, exp.Table) else None
        select = select.parent_select
    return None


def sources(select: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the tables and derived tables of a SELECT."""
    clause = select.args.get("from_")
    if clause is not None:
        yield clause.this
    for join in select.args.get("joins") or []:
        yield join.this


def _refuse(tree: exp.Query, further: tuple[type[exp.Expr], ...]) -> None:
    refuse_placeholders(tree, "name a parameter of the channel")
    refuse_randomness(tree)
    nodes: tuple[type[exp.Expr], ...] = (*ACCEPTED, exp.RowNumber, *further)
    refuse_functions_outside(tree, _NAMED, nodes, of="channels", page="docs/channels/statements.md#functions")
    for column in tree.find_all(exp.Column):
        if column.name.lower() in _HIDDEN:
            raise refusal(column, f"{column.sql()} is hidden", "write active_timestamp(t) for a dataset t")
    for clause in tree.find_all(exp.With):
        if clause.args.get("recursive"):
            raise refusal(clause, "a recursive WITH is not accepted", "write the steps as joins")


def _without_with(tree: exp.Query) -> exp.Query:
    """Return a tree whose WITH queries are derived tables."""
    for clause in list(tree.find_all(exp.With)):
        for common in clause.expressions:
            for table in list(tree.find_all(exp.Table)):
                if table.name.lower() == common.alias.lower() and not table.args.get("db"):
                    table.replace(
                        exp.Subquery(
                            this=common.this.copy(), alias=exp.TableAlias(this=exp.to_identifier(table.alias_or_name))
                        )
                    )
        clause.pop()
    return tree


def _name_tables(tree: exp.Expr, shapes: Mapping[str, Shape]) -> None:
    """Give each table the name of its dataset as one identifier, and an alias."""
    known = {name.lower(): name for name in shapes}
    for table in tree.find_all(exp.Table):
        written = ".".join(part.name for part in table.parts)
        name = known.get(written.lower())
        if name is None:
            listed = ", ".join(sorted(shapes)) or "none"
            raise refusal(table, f"the dataset {written!r} is unknown", f"name one of the datasets: {listed}")
        if any(table.args.get(part) for part in ("pivots", "sample", "version")):
            raise refusal(table, "FROM holds something else than datasets", "name datasets")
        alias = table.alias_or_name
        if alias.startswith("_"):
            raise refusal(table, f"the alias {alias!r} begins with _", "give the dataset another alias")
        meta = table.this.meta
        identifier = exp.to_identifier(name, quoted="." in name)
        identifier.meta.update(meta)
        table.set("this", identifier)
        table.set("db", None)
        table.set("catalog", None)
        table.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))


def _resolve_active_functions(tree: exp.Expr, definition: ChannelDefinition, shapes: Mapping[str, Shape]) -> None:
    for call in list(tree.find_all(exp.Anonymous)):
        name = call.name.lower()
        if name != "is_new" and name not in _ACTIVE:
            continue
        argument = call.expressions[0] if len(call.expressions) == 1 else None
        if not isinstance(argument, exp.Column) or argument.table:
            raise refusal(call, f"{name} needs the alias of a dataset", f"write {name}(t), where t is in FROM")
        source = source_of(call, argument.name)
        if source is None:
            raise refusal(call, f"{argument.name!r} is no dataset in FROM", f"write {name}(t), where t is in FROM")
        if not shapes[source.name].active:
            raise refusal(call, f"the dataset {source.name!r} is not active", "create it with CREATE ACTIVE DATASET")
        if definition.every_instant:
            raise refusal(call, f"{name} has no meaning in a channel EVERY INSTANT", "leave it out")
        if definition.kind is Kind.REPETITIVE:
            raise refusal(call, f"{name} has no meaning in a repetitive channel", "write CREATE CONTINUOUS CHANNEL")
        column = exp.column(_ACTIVE.get(name, TS), table=source.alias_or_name)
        call.replace(exp.Anonymous(this=IS_NEW, expressions=[column]) if name == "is_new" else column)


def _resolve_parameters(tree: exp.Expr, definition: ChannelDefinition) -> None:
    """Replace parameters by placeholders. A parameter hides a column without table of the same name."""
    numbers = {parameter.name.lower(): number for number, parameter in enumerate(definition.parameters)}
    if len(numbers) < len(definition.parameters):
        raise QueryRefusedError(1, 1, "two parameters have the same name", "give each parameter another name")
    for column in list(tree.find_all(exp.Column)):
        if not column.table and column.name.lower() in numbers and not isinstance(column.this, exp.Star):
            placeholder = exp.Placeholder(this=parameter_column(numbers[column.name.lower()]))
            placeholder.meta.update(column.this.meta)
            parent = column.parent
            if isinstance(parent, exp.Select) and column.arg_key == "expressions":
                column.replace(exp.alias_(placeholder, column.name))
            else:
                column.replace(placeholder)


def _expand_records(tree: exp.Expr, shapes: Mapping[str, Shape]) -> None:
    """Replace stars by the visible columns, and an alias that stands for a record by a struct of them."""
    for select in tree.find_all(exp.Select):
        expressions: list[exp.Expr] = []
        for item in select.expressions:
            star = isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star))
            if not star or isinstance(select.parent, exp.Exists):
                expressions.append(item)
                continue
            wanted = item.table if isinstance(item, exp.Column) else ""
            for source in sources(select):
                if wanted.lower() not in ("", source.alias_or_name.lower()):
                    continue
                names = shapes[source.name].schema.names if isinstance(source, exp.Table) else source.this.named_selects
                expressions += [exp.column(name, table=source.alias_or_name) for name in names]
        select.set("expressions", expressions)
    for column in list(tree.find_all(exp.Column)):
        if column.table or isinstance(column.this, exp.Star):
            continue
        dataset = source_of(column, column.name)
        if dataset is None or column.name in shapes[dataset.name].schema.names:
            continue
        record = exp.Struct(
            expressions=[
                exp.PropertyEQ(this=_as_written(name), expression=exp.column(name, table=dataset.alias_or_name))
                for name in shapes[dataset.name].schema.names
            ]
        )
        named = isinstance(column.parent, exp.Select) and column.arg_key == "expressions"
        column.replace(exp.alias_(record, column.name) if named else record)


def _name_results(tree: exp.Query, names: list[str]) -> None:
    """Give the columns of the result their names as they were written: resolution turns names to small letters."""
    arm: exp.Expr = tree
    while isinstance(arm, exp.SetOperation | exp.Subquery):
        arm = arm.this
    for item, name in zip(arm.expressions, names, strict=True):
        item.set("alias", exp.to_identifier(name, quoted=True))


def _types(shapes: Mapping[str, Shape]) -> dict[str, Any]:
    return {_quoted(name): types_of(shape.schema) for name, shape in shapes.items()}


def _as_written(name: str) -> exp.Identifier:
    identifier = exp.to_identifier(name)
    identifier.meta["case_sensitive"] = True
    return identifier


def types_of(schema: Schema) -> dict[str, str]:
    """Return the SQL types of a dataset's columns, the hidden ones included."""
    hidden = dict.fromkeys((TS, PREVIOUS, CURRENT), "timestamp")
    return {column.name: _SQL_TYPES.get(column.type, column.type.value) for column in schema.columns} | hidden


def _quoted(name: str) -> str:
    return f'"{name}"' if "." in name else name
