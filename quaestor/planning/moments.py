"""Moments: times that follow the clock in a declared way, `floor(clock + a, unit) + b`. Pure: no clock.

A moment never goes back while the clock goes on. Therefore each time has one first instant at which the moment reaches it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, Self, SupportsIndex

MARK: Final = "$quaestorMoment"
"""Name of the only field of a moment in a condition."""
_EPOCH: Final = datetime(1970, 1, 1)
_AWARE_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_FIRST_MS: Final = (datetime.min - _EPOCH) // _MILLISECOND
_LAST_MS: Final = (datetime.max - _EPOCH) // _MILLISECOND


class Moment(NamedTuple):
    """Time that follows the clock. All numbers are whole milliseconds.

    before_ms: shift before the time is floored.
    unit_ms: unit to whose multiples since the epoch the time is floored; 1: it is not.
    after_ms: shift after that.
    """

    before_ms: int = 0
    unit_ms: int = 1
    after_ms: int = 0

    def at(self, now_ms: int) -> int:
        """Return the moment's value while the clock shows `now_ms`."""
        return (now_ms + self.before_ms) // self.unit_ms * self.unit_ms + self.after_ms

    def first_at(self, value_ms: int) -> int:
        """Return the first instant at which the moment is at or after `value_ms`."""
        return -(-(value_ms - self.after_ms) // self.unit_ms) * self.unit_ms - self.before_ms

    def shifted(self, by_ms: int) -> Moment:
        """Return the moment that is later by so many milliseconds."""
        if self.unit_ms == 1:
            return Moment(self.before_ms + by_ms + self.after_ms)
        return self._replace(after_ms=self.after_ms + by_ms)

    def floored(self, unit_ms: int) -> Moment | None:
        """Return the moment floored to multiples of the unit; None if it is floored to another unit already."""
        if self.unit_ms == 1:
            return Moment(self.before_ms + self.after_ms, unit_ms)
        return self if unit_ms == self.unit_ms and self.after_ms == 0 else None

    def seen_from(self, ahead_ms: int) -> Moment:
        """Return the same moment for a clock that shows `ahead_ms` less."""
        return self._replace(before_ms=self.before_ms + ahead_ms)

    def marked(self) -> dict[str, Any]:
        """Return the moment as it stands in a condition."""
        return {MARK: list(self)}


def moment_of(value: Any) -> Moment | None:
    """Return the moment that a value of a condition stands for; None for any other value."""
    if isinstance(value, dict) and MARK in value and len(value) == 1:
        return Moment(*map(int, value[MARK]))
    return None


def date_of(at_ms: int) -> datetime:
    """Return a time as BSON holds it: naive, in UTC. Times outside Python's years become its first or last one."""
    return _EPOCH + min(max(at_ms, _FIRST_MS), _LAST_MS) * _MILLISECOND


def ms_of(value: datetime) -> int:
    """Return ms since the epoch; naive datetimes are UTC."""
    return (value - (_EPOCH if value.tzinfo is None else _AWARE_EPOCH)) // _MILLISECOND


class DeclaredTime(datetime):
    """Datetime that the application computed from the clock in a declared way. Aware, in UTC, of whole milliseconds.

    moment: how it follows the clock.
    read_ms: what the clock showed.

    A timedelta of whole milliseconds may be added or subtracted. All other operations give an ordinary datetime.
    """

    moment: Moment
    read_ms: int

    @classmethod
    def of(cls, moment: Moment, read_ms: int) -> Self:
        """Return the time of a moment while the clock shows `read_ms`."""
        at = date_of(moment.at(read_ms))
        declared = datetime.__new__(
            cls, at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond, tzinfo=UTC
        )
        declared.moment, declared.read_ms = moment, read_ms
        return declared

    def plain(self) -> datetime:
        """Return an ordinary datetime of the same time."""
        return datetime.combine(self.date(), self.time(), UTC)

    def floor(self, unit: timedelta) -> DeclaredTime:
        """Return the time floored to multiples of the unit since 1970, in UTC.

        unit: of whole milliseconds, at most a day, and a day is a multiple of it. Raises ValueError for another unit, and for a
        time that is floored already.
        """
        unit_ms, rest = divmod(unit, _MILLISECOND)
        if rest or unit_ms <= 0 or timedelta(days=1) % unit:
            raise ValueError(f"the unit is {unit}: give a duration that divides a day, such as timedelta(minutes=5)")
        moment = self.moment.floored(unit_ms)
        if moment is None:
            raise ValueError("the time is floored already: floor it once, and shift it then")
        return DeclaredTime.of(moment, self.read_ms)

    def __add__(self, other: timedelta) -> Any:
        if not isinstance(other, timedelta):
            return NotImplemented
        by_ms, rest = divmod(other, _MILLISECOND)
        return self.plain() + other if rest else DeclaredTime.of(self.moment.shifted(by_ms), self.read_ms)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + -other if isinstance(other, timedelta) else self.plain() - other

    def replace(self, *args: Any, **fields: Any) -> datetime:  # type: ignore[override]
        """Return an ordinary datetime with these fields: how it follows the clock is not declared."""
        return self.plain().replace(*args, **fields)

    def astimezone(self, tz: Any = None) -> datetime:  # type: ignore[override]
        """Return an ordinary datetime of the same time in another zone."""
        return self.plain().astimezone(tz)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: dict[int, Any], /) -> Self:
        return self

    def __reduce_ex__(self, _protocol: SupportsIndex, /) -> tuple[Any, ...]:
        return datetime, (*self.timetuple()[:6], self.microsecond, UTC)
