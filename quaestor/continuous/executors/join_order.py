"""Order of joins for engines that join tables as FROM names them: the tables with new rows first, then their partners."""

from __future__ import annotations

from sqlglot import exp

from quaestor.continuous.executors.binding import conjuncts, windows


def newest_first(query: exp.Query) -> None:
    """Reorder the products of tables of a bound query, in place. The rows of the query stay the same."""
    for select in query.find_all(exp.Select):
        first, joins = select.args.get("from_"), select.args.get("joins") or []
        if first is None or any(join.args.get("on") or join.args.get("using") or join.side for join in joins):
            continue
        sources = [first.this, *(join.this for join in joins)]
        by_alias = {source.alias_or_name: source for source in sources}
        if len(by_alias) < len(sources) or any(isinstance(column, exp.Star) for column in select.expressions):
            continue
        order = _order(select, list(by_alias))
        for clause, alias in zip((first, *joins), order, strict=True):
            clause.set("this", by_alias[alias])


def _order(select: exp.Select, aliases: list[str]) -> list[str]:
    """Return the aliases: those of new rows, then each that an equality joins with an earlier one, then the others."""
    bounds = windows(select)
    order = [alias for alias in aliases if alias in bounds and bounds[alias].after is not None]
    if not order:
        return aliases
    where = select.args["where"].this
    links = [
        {condition.this.table, condition.expression.table}
        for condition in conjuncts(where)
        if isinstance(condition, exp.EQ)
        and isinstance(condition.this, exp.Column)
        and isinstance(condition.expression, exp.Column)
    ]
    waiting = [alias for alias in aliases if alias not in order]
    while waiting:
        joined = (alias for alias in waiting if any(alias in link and link & set(order) - {alias} for link in links))
        following = next(joined, waiting[0])
        waiting.remove(following)
        order.append(following)
    return order
