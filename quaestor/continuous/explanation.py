"""Explanation of a continuous query: its meaning over time, the memory it needs, and the order knowledge it uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quaestor.continuous.rules.derivations import Derivation
from quaestor.continuous.rules.groups import never_leaves
from quaestor.continuous.rules.orders import KnownOrder
from quaestor.continuous.sql.groups import Grouped
from quaestor.continuous.sql.intervals import duration
from quaestor.continuous.sql.model import UNTIL, Conjunction, Selection
from quaestor.tables.schema import TS


def explanation(
    selections: Sequence[Selection],
    derivations: Sequence[Derivation],
    orders: Sequence[KnownOrder],
    *,
    repeats_within: int | None,
) -> str:
    """Return sentences about a query, a line each.

    orders: known orders that the query uses.
    repeats_within: ticks after its result within which a row may be returned again; None: without end.
    """
    lines = ["The result is every row that the query returned at any instant, each row once."]
    lines += _warnings(selections)
    lines.append(_memory(derivations, repeats_within))
    lines += _orders(orders)
    return "\n".join(dict.fromkeys(lines))


def explanation_of_groups(grouped: Grouped, orders: Sequence[KnownOrder]) -> str:
    """Return sentences about a grouped query, a line each. See `explanation`."""
    part = grouped.conjunction
    lines = ["The result is every row that the query returned at any instant, each row once."]
    lines += _warnings([Selection(grouped.columns, part, 0)])
    lines.append(
        "The aggregates of a group change at each row of the group."
        if never_leaves(grouped)
        else "The aggregates of a group change where a row enters the group, and where a row leaves it."
    )
    if grouped.shows_aggregates:
        lines.append("The result holds an aggregate, so each of its values is a row.")
    if grouped.limit is not None:
        lines.append("Groups of equal order are in the order of GROUP BY, NULL last.")
    lines.append("A group can give an equal row again, so delivered rows are remembered without end.")
    lines += _orders(orders)
    return "\n".join(dict.fromkeys(lines))


def _orders(orders: Sequence[KnownOrder]) -> list[str]:
    return [f"The query uses a known order: {order}." for order in orders]


def _warnings(selections: Sequence[Selection]) -> Iterator[str]:
    for selection in selections:
        part = selection.conjunction
        if part.absent and _only_publication(part):
            yield (
                "A row is returned at its publication, before any row could match its NOT EXISTS."
                " Add a bound such as `ts + INTERVAL 14 DAY < now()` if the absence must last."
            )
        if part.absent and any(_ends(absent) for absent in part.absent):
            yield "A NOT EXISTS can become true again, because its rows stop counting after some time."
        if any(bound.name not in _life(part) for bound in part.uppers):
            yield "A row that is published after its upper bound on current time is never returned."
        if any(table.key for table in part.tables):
            yield "A version counts from its publication until the next version of its record."


def _memory(derivations: Sequence[Derivation], repeats_within: int | None) -> str:
    if repeats_within == 0:
        return "No row repeats, so no delivered row is remembered."
    if repeats_within is not None:
        return (
            f"A row can come again within {duration(repeats_within)} after its result,"
            " so delivered rows are remembered for that time."
        )
    if len(derivations) == 1 and derivations[0].plain and len(derivations[0].tables) == 1:
        return "An equal row of a later run repeats a result, so delivered rows are remembered without end."
    return (
        "Several combinations of rows can give the same result at different instants,"
        " so delivered rows are remembered without end."
    )


def _life(part: Conjunction) -> set[str]:
    return {f"{table.alias}.{UNTIL}" for table in part.tables}


def _only_publication(part: Conjunction) -> bool:
    instants = {f"{table.alias}.{TS}" for table in part.tables}
    return all(bound.name in instants and bound.ticks == 0 for bound in part.lowers)


def _ends(part: Conjunction) -> bool:
    return bool(part.uppers or part.absent)
