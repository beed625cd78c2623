"""`$dateAdd` and `$dateSubtract`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quaestor.errors import UnsupportedQueryError
from quaestor.query.expressions.calendar import DAY_MS, civil, days_in_month
from quaestor.query.expressions.date_parts import zone_member
from quaestor.query.expressions.dates import date, in_range
from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.forms import members_of
from quaestor.query.expressions.kinds import INT64_MIN
from quaestor.query.expressions.nodes import Compiled, Operator, Scope, call
from quaestor.query.expressions.numeric import whole_number
from quaestor.query.expressions.time_units import ELAPSED, UNIT_MONTHS, UNIT_MS, moment_of, time_unit
from quaestor.query.expressions.zones import Zone, local_ms, zone


def _shift(sign: int) -> Operator:
    def build(name: str, operand: Any, scope: Scope) -> Compiled:
        members = members_of(
            name,
            operand,
            required=("startDate", "unit", "amount"),
            optional=("timezone",),
            missing="{name} requires startDate, unit, and amount to be present",
            unknown="Unrecognized argument to {name}: {field}. Expected arguments are startDate, unit, amount, and "
            "optionally timezone.",
            not_object="{name} expects an object as its argument",
        )

        def shift(value: Any, unit_value: Any, amount_value: Any, zone_name: Any) -> Any:
            at_ms = moment_of(name, "startDate", value)
            unit = time_unit(name, unit_value)
            amount = whole_number(amount_value)
            if amount is None:
                raise ExpressionError(f"{name} expects integer amount of time units")
            if amount == INT64_MIN and sign < 0:
                raise ExpressionError(f"invalid {name} 'amount' parameter value: {amount}")
            return date(date_add(at_ms, unit, sign * amount, zone(zone_name)))

        operands = [scope.compile(members[field]) for field in ("startDate", "unit", "amount")]
        return call(shift, [*operands, zone_member(members, scope)], scope, deciding=4)

    return build


def date_add(at_ms: int, unit: str, amount: int, local: Zone) -> int:
    """Return the moment that many units later; a day that its month does not have becomes the month's last.

    Raises ExpressionError when BSON cannot hold it.
    """
    if unit != "millisecond" and at_ms < 0 and at_ms % 1000:
        # mongod 6.0 is a second off here, and later servers may correct that.
        raise UnsupportedQueryError("adding to a date before 1970 with a fraction of a second differs between servers")
    if unit in ELAPSED:
        return in_range(at_ms + amount * UNIT_MS[unit], "dateAdd")
    if amount == 0:
        return at_ms  # as mongod: a local time that occurs twice stays the one that it was
    offset, saving = local.clock(at_ms)
    there = at_ms + offset
    if unit in UNIT_MS:
        moved = there + amount * UNIT_MS[unit]
    else:
        year, month, day = civil(there)
        years, month_index = divmod(year * 12 + month - 1 + amount * UNIT_MONTHS[unit], 12)
        last = days_in_month(years, month_index + 1)
        moved = local_ms(years, month_index + 1, min(day, last), there % DAY_MS)
    return in_range(local.moment(in_range(moved, "dateAdd"), saving=saving), "dateAdd")


OPERATORS: Final[Mapping[str, Operator]] = {"$dateAdd": _shift(1), "$dateSubtract": _shift(-1)}
