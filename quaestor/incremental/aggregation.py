"""Aggregation stage: `$group` by key, and with it count, distinct and `$sortByCount`.

Each row contributes its group and one value for each accumulator. When the row changes, its old contribution is removed and
the new one added; at most two groups change. If the input holds the row before, the old contribution is computed from that,
and nothing is remembered for the row. Otherwise the old contribution was remembered. Source: Wingerath's thesis, section
3.3.2, designs this stage; the prototype did not have it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from quaestor.errors import MalformedQueryError, UncertainMatchError, UnsupportedQueryError
from quaestor.incremental.accumulators import ORDERED, UNORDERED, Accumulator
from quaestor.incremental.changes import Change, Row, Unknown, same_row
from quaestor.query.bson_order import order_key
from quaestor.query.expressions import MISSING, compile_expression
from quaestor.query.sorting import SortKey

Evaluate = Callable[[Row], Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grouping:
    """Compiled `$group` stage.

    group_id: returns a row's group; missing counts as null.
    fields: name, value of a row, and maker of the accumulator.
    order: returns a row's place for $first, $last and $push.
    always: there is a group even without any row (count).
    """

    group_id: Evaluate
    fields: tuple[tuple[str, Evaluate, Callable[[], Accumulator]], ...]
    order: Callable[[Row], SortKey] | None = None
    always: bool = False


def parse_group(stage: Any, *, order: Callable[[Row], SortKey] | None) -> Grouping:
    """Compile the argument of `$group`.

    stage: the argument.
    order: order of the `$sort` directly before it, or None.

    Raises MalformedQueryError for an argument that mongod refuses, UnsupportedQueryError for an accumulator that is not
    maintained.
    """
    if not isinstance(stage, Mapping) or "_id" not in stage:
        raise MalformedQueryError(f"a group specification must be a document with an _id, not {stage!r}")
    fields = []
    ordered = False
    for name, argument in stage.items():
        if name == "_id":
            continue
        if not name or "." in name or name.startswith("$"):
            raise MalformedQueryError(f"the field name {name!r} cannot be used in $group: no dots, no leading dollar")
        if not isinstance(argument, Mapping) or len(argument) != 1:
            raise MalformedQueryError(
                f"the field {name!r} of $group must have exactly one accumulator, not {argument!r}"
            )
        accumulator, operand = next(iter(argument.items()))
        if isinstance(operand, list):
            raise MalformedQueryError(f"the {accumulator} accumulator of {name!r} takes one operand, not an array")
        if accumulator == "$count":
            if operand != {}:
                raise MalformedQueryError("the $count accumulator takes {}")
            operand = {"$literal": 1}
        make = UNORDERED.get(accumulator)
        if make is None and accumulator in ORDERED:
            if order is None:
                raise UnsupportedQueryError(
                    f"{accumulator} without a $sort directly before its $group: the database may choose any order"
                )
            make, ordered = ORDERED[accumulator], True
        if make is None:
            raise UnsupportedQueryError(f"the accumulator {accumulator} is not maintained")
        fields.append((name, compile_expression(operand), make))
    return Grouping(group_id=compile_expression(stage["_id"]), fields=tuple(fields), order=order if ordered else None)


class _Contribution(NamedTuple):
    """Contribution of one row to its group."""

    group: Hashable
    id: Any
    values: tuple[Any, ...]
    order: Any


@dataclass(slots=True, eq=False)
class _Group:
    """One group.

    rows: number of contributing rows.
    shown: the group as last passed to the next stage; None: not passed.
    """

    id: Any
    accumulators: tuple[Accumulator, ...]
    rows: int = 0
    shown: Row | None = field(default=None)


class GroupStage:
    """Stage whose rows are the groups, keyed by their id. Not thread-safe.

    O(accumulators x log(values in the group)) for each change.
    """

    def __init__(self, grouping: Grouping) -> None:
        self._grouping = grouping
        self._groups: dict[Hashable, _Group] = {}
        self._remembered: dict[Hashable, _Contribution] = {}
        self._untold: dict[Hashable, None] = {}
        if grouping.always:
            self._group(order_key(None), None)
            self._untold[order_key(None)] = None

    @property
    def remembered(self) -> int:
        """Number of rows whose contribution is remembered."""
        return len(self._remembered)

    def holds(self, key: Hashable) -> bool:
        """Whether the contribution of the row with this key is remembered."""
        return key in self._remembered

    def preload(self, group_id: Any, values: Sequence[Any], rows: int) -> None:
        """Begin with a number of rows that contribute the same, without their identities."""
        group_id = None if group_id is MISSING else group_id
        self._apply(_Contribution(order_key(group_id), group_id, tuple(values), None), rows)
        self._untold[order_key(group_id)] = None

    def feed(self, changes: Sequence[Change]) -> list[Change]:
        """Return the changes of the groups that result from these changes of rows."""
        touched, self._untold = self._untold, {}
        for change in changes:
            new = None if change.after is None else self._contribution(change, change.after)
            old = self._old(change, new)
            if old is not None:
                self._apply(old, -1)
                touched[old.group] = None
            if new is not None:
                self._apply(new, 1)
                touched[new.group] = None
        return [group_change for key in touched if (group_change := self._change_of(key)) is not None]

    def _old(self, change: Change, new: _Contribution | None) -> _Contribution | None:
        if not isinstance(change.before, Unknown):
            return None if change.before is None else self._contribution(change, change.before)
        old = self._remembered.pop(change.key, None)
        if new is not None:
            self._remembered[change.key] = new
        return old

    def _contribution(self, change: Change, row: Row) -> _Contribution:
        grouping = self._grouping
        group_id = grouping.group_id(row)
        if group_id is MISSING:
            group_id = None
        values = tuple(value(row) for _, value, _ in grouping.fields)
        order = None if grouping.order is None else (grouping.order(row), change.key)
        return _Contribution(order_key(group_id), group_id, values, order)

    def _group(self, key: Hashable, group_id: Any) -> _Group:
        group = self._groups.get(key)
        if group is None:
            made = tuple(make() for _, _, make in self._grouping.fields)
            group = self._groups[key] = _Group(group_id, made)
        return group

    def _apply(self, contribution: _Contribution, times: int) -> None:
        group = self._group(contribution.group, contribution.id)
        group.rows += times
        if group.rows < 0:
            raise UncertainMatchError(f"a row cannot leave the empty group {group.id!r}: a write was missed")
        for accumulator, value in zip(group.accumulators, contribution.values, strict=True):
            accumulator.add(value, contribution.order, times)

    def _change_of(self, key: Hashable) -> Change | None:
        """Return the change of this group for the next stage, or None."""
        group = self._groups[key]
        before, after = group.shown, None
        if group.rows or self._grouping.always:
            names = (name for name, _, _ in self._grouping.fields)
            after = {
                "_id": group.id,
                **{name: part.result() for name, part in zip(names, group.accumulators, strict=True)},
            }
        else:
            del self._groups[key]
        group.shown = after
        if before is after or (before is not None and after is not None and same_row(before, after)):
            return None
        return Change(key, group.id, before, after)
