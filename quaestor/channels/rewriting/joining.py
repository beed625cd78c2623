"""Join of a body with the subscriptions: parameters become columns, and one plan serves all subscriptions."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from quaestor.channels.rewriting.reading import parameter_column

SUBSCRIPTIONS: Final = "_subscriptions"
"""Relation of the different parameters of the subscriptions."""
TARGET: Final = "_target"
"""First column of a plan: the number of the parameters that a row is for."""
_ALIAS: Final = "_sub"
_BODY: Final = "_body"
_PREFIX: Final = parameter_column(0)[:-1]


def is_flat(tree: exp.Query) -> bool:
    """Whether the subscriptions can be one more table of each SELECT. Otherwise the body is a lateral subquery."""
    selects = arms(tree)
    return bool(selects) and all(_is_flat(select) for select in selects)


def joined(tree: exp.Query, parameters: int) -> exp.Query:
    """Return a query of all subscriptions: the columns of the body after the number of the parameters."""
    if is_flat(tree):
        flat = tree.copy()
        for arm in arms(flat):
            _join_flat(arm, parameters)
        return with_parameters(flat)
    body = exp.Lateral(
        this=exp.Subquery(this=with_parameters(tree.copy())), alias=exp.TableAlias(this=exp.to_identifier(_BODY))
    )
    columns = [exp.column(exp.to_identifier(name, quoted=True), table=_BODY) for name in tree.named_selects]
    query = exp.Select().select(_target(), *columns).from_(_subscriptions())
    query.append("joins", exp.Join(this=body, kind="CROSS"))
    return query


def with_parameters(tree: exp.Query) -> exp.Query:
    """Return a tree whose parameters are columns of the subscriptions."""

    def replaced(node: exp.Expr) -> exp.Expr:
        return exp.column(node.name, table=_ALIAS) if is_parameter(node) else node

    return tree.transform(replaced)  # type: ignore[return-value]


def is_parameter(node: exp.Expr) -> bool:
    """Whether a node is a parameter of the channel."""
    return isinstance(node, exp.Placeholder) and node.name.startswith(_PREFIX)


def arms(tree: exp.Expr) -> list[exp.Select]:
    """Return the SELECTs of a query that UNION joins; none: the query has another form."""
    match tree:
        case exp.Select():
            return [tree]
        case exp.Union() if not any(tree.args.get(part) for part in ("order", "limit", "offset")):
            left, right = arms(tree.left), arms(tree.right)
            return [*left, *right] if left and right else []
        case exp.Subquery():
            return arms(tree.this)
    return []


def _is_flat(select: exp.Select) -> bool:
    if any(select.args.get(part) for part in ("limit", "offset", "qualify", "windows", "laterals", "having_max")):
        return False
    if any(join.side in ("RIGHT", "FULL") or join.method for join in select.args.get("joins") or []):
        return False
    distinct = select.args.get("distinct")
    if isinstance(distinct, exp.Distinct) and distinct.args.get("on"):
        return False
    own = [node for node in select.find_all(exp.AggFunc, exp.Window) if node.parent_select is select]
    if any(isinstance(node, exp.Window) for node in own):
        return False
    group = select.args.get("group")
    if group is None:
        return not own and select.args.get("having") is None
    return bool(group.expressions) and not any(value for name, value in group.args.items() if name != "expressions")


def _join_flat(select: exp.Select, parameters: int) -> None:
    select.set("order", None)
    clause = select.args.get("from_")
    if clause is None:
        select.set("from_", exp.From(this=_subscriptions()))
    else:
        first = exp.Join(this=clause.this, kind="CROSS")
        select.set("from_", exp.From(this=_subscriptions()))
        select.set("joins", [first, *(select.args.get("joins") or [])])
    select.set("expressions", [_target(), *select.expressions])
    group = select.args.get("group")
    if group is not None:
        names = (TARGET, *map(parameter_column, range(parameters)))
        group.set("expressions", [*(exp.column(name, table=_ALIAS) for name in names), *group.expressions])


def _subscriptions() -> exp.Expr:
    return exp.alias_(exp.table_(SUBSCRIPTIONS), _ALIAS, table=True)


def _target() -> exp.Expr:
    return exp.alias_(exp.column(TARGET, table=_ALIAS), TARGET)
