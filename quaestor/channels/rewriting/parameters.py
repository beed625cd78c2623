"""Types of a channel's parameters: declared, or taken from the columns that the body compares them with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from sqlglot import exp

from quaestor.channels.rewriting.definition import ChannelDefinition, Parameter, Shape
from quaestor.channels.rewriting.reading import parameter_column, source_of
from quaestor.continuous.sql.refusals import QueryRefusedError, refusal
from quaestor.tables.schema import Type

_COMPARISONS: Final = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.Like)
_RADIUS: Final = 2


def typed(definition: ChannelDefinition, tree: exp.Query, shapes: Mapping[str, Shape]) -> tuple[Parameter, ...]:
    """Return the parameters with their types. Raises QueryRefusedError for a parameter without one."""
    return tuple(
        parameter
        if parameter.type is not None
        else Parameter(parameter.name, _type_of(parameter, number, tree, shapes))
        for number, parameter in enumerate(definition.parameters)
    )


def _type_of(parameter: Parameter, number: int, tree: exp.Query, shapes: Mapping[str, Shape]) -> Type:
    uses = [node for node in tree.find_all(exp.Placeholder) if node.name == parameter_column(number)]
    remedy = f"write its type: ({parameter.name} bigint)"
    if not uses:
        raise QueryRefusedError(1, 1, f"the parameter {parameter.name!r} is not used", f"leave it out, or {remedy}")
    for use in uses:
        for kind in _kinds(use, shapes):
            return kind
    raise refusal(uses[0], f"the type of the parameter {parameter.name!r} is unknown", remedy)


def _kinds(use: exp.Expr, shapes: Mapping[str, Shape]) -> Iterator[Type]:
    parent = use.parent
    if isinstance(parent, exp.Anonymous) and parent.name.lower().startswith(("near", "distance")):
        yield Type.DOUBLE if len(parent.expressions) > _RADIUS and parent.expressions[_RADIUS] is use else Type.POINT
    if isinstance(parent, _COMPARISONS):
        other = parent.expression if parent.this is use else parent.this
        if isinstance(other, exp.Column):
            source = source_of(use, other.table)
            schema = None if source is None else shape_of(source, shapes).schema
            for column in () if schema is None else schema.columns:
                if column.name.lower() == other.name.lower():
                    yield column.type


def shape_of(table: exp.Table, shapes: Mapping[str, Shape]) -> Shape:
    """Return the shape of a table, whose name may have lost its capitals."""
    return shapes[name_of(table, shapes)]


def name_of(table: exp.Table, shapes: Mapping[str, Shape]) -> str:
    """Return the name of the dataset of a table."""
    return next(name for name in shapes if name.lower() == table.name.lower())
