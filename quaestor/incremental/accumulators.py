"""Accumulators of `$group` as multisets: a record's contribution can be removed again when the record changes or goes.

Manual: Accumulators ($group). `$min` and `$max` keep every value, ordered, so that they survive the removal of the extreme.
    Among equal
values of different numeric types, any one may be shown. `$first`, `$last` and `$push` keep every value by the place of its
record in the `$sort` before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from sortedcontainers import SortedDict

from quaestor.errors import UncertainMatchError
from quaestor.incremental.sums import Total
from quaestor.query.bson_order import MISSING, Key, order_key
from quaestor.query.expressions.kinds import is_nullish

Order = Any
"""Place of a record among those of its group; comparable and unique. None without an order."""

_NOTHING: Final = object()


class Accumulator(Protocol):
    """Accumulated field of one group. O(log n) for each value, O(1) or O(size of the result) for the result."""

    def add(self, value: Any, order: Order, times: int) -> None:
        """Add a value (MISSING included) a number of times; a negative number removes it.

        Raises UncertainMatchError if the value to remove is certainly absent.
        """

    def result(self) -> Any:
        """Return the present value of the field."""


class Sum:
    """Accumulator of `$sum`, `$count` and `$avg`."""

    __slots__ = ("_result", "_total")

    def __init__(self, result: Callable[[Total], Any]) -> None:
        self._total = Total()
        self._result = result

    def add(self, value: Any, order: Order, times: int) -> None:
        """Add a value a number of times; see `Accumulator`."""
        self._total.add(value, times)

    def result(self) -> Any:
        """Return the present value of the field."""
        return self._result(self._total)


class Extreme:
    """Accumulator of `$min` (place 0) and `$max` (place -1).

    Null and missing do not count; without values the result is null.
    """

    __slots__ = ("_place", "_values")

    def __init__(self, place: int) -> None:
        self._place = place
        self._values: SortedDict[Key, tuple[int, Any]] = SortedDict()

    def add(self, value: Any, order: Order, times: int) -> None:
        """Add a value a number of times; see `Accumulator`."""
        if not is_nullish(value):
            _count_value(self._values, value, times)

    def result(self) -> Any:
        """Return the present value of the field."""
        return self._values.peekitem(self._place)[1][1] if self._values else None


class Distinct:
    """Accumulator of `$addToSet`: every value once, in no particular order, as in the database."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[Key, tuple[int, Any]] = {}

    def add(self, value: Any, order: Order, times: int) -> None:
        """Add a value a number of times; see `Accumulator`."""
        if value is not MISSING:
            _count_value(self._values, value, times)

    def result(self) -> Any:
        """Return the present value of the field."""
        return [value for _, value in self._values.values()]


class Ordered:
    """Accumulator of `$first`, `$last` and `$push` under a sort."""

    __slots__ = ("_result", "_values")

    def __init__(self, result: Callable[[SortedDict[Order, Any]], Any]) -> None:
        self._values: SortedDict[Order, Any] = SortedDict()
        self._result = result

    def add(self, value: Any, order: Order, times: int) -> None:
        """Add a value a number of times; see `Accumulator`."""
        if times > 0:
            self._values[order] = value
        elif self._values.pop(order, _NOTHING) is _NOTHING:
            raise UncertainMatchError(f"{value!r} cannot leave a group that does not hold it: a write was missed")

    def result(self) -> Any:
        """Return the present value of the field."""
        return self._result(self._values)


def _count_value(values: dict[Key, tuple[int, Any]], value: Any, times: int) -> None:
    key = order_key(value)
    count, first = values.get(key, (0, value))
    if count + times < 0:
        raise UncertainMatchError(f"{value!r} cannot leave a group that does not hold it: a write was missed")
    if count + times:
        values[key] = (count + times, first)
    else:
        del values[key]


def _end(place: int) -> Callable[[SortedDict[Order, Any]], Any]:
    def value(values: SortedDict[Order, Any]) -> Any:
        extreme = values.peekitem(place)[1] if values else None
        return None if extreme is MISSING else extreme

    return value


def _all(values: SortedDict[Order, Any]) -> Any:
    return [value for value in values.values() if value is not MISSING]


UNORDERED: Final[Mapping[str, Callable[[], Accumulator]]] = {
    "$sum": lambda: Sum(Total.sum),
    "$count": lambda: Sum(Total.sum),
    "$avg": lambda: Sum(Total.average),
    "$min": lambda: Extreme(0),
    "$max": lambda: Extreme(-1),
    "$addToSet": Distinct,
}
"""Makers of accumulators by name, for values in any order."""

ORDERED: Final[Mapping[str, Callable[[], Accumulator]]] = {
    "$first": lambda: Ordered(_end(0)),
    "$last": lambda: Ordered(_end(-1)),
    "$push": lambda: Ordered(_all),
}
"""Makers of accumulators that need the order of the records."""
