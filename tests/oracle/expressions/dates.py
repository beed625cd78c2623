"""Random expressions that give a date, and expressions that take a date apart."""

from __future__ import annotations

from typing import Any

from tests.oracle.expressions import values
from tests.oracle.expressions.drawing import Drawing

UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond")
DATE_PARTS = (
    "$year", "$month", "$dayOfMonth", "$hour", "$minute", "$second", "$millisecond", "$dayOfYear", "$dayOfWeek", "$week",
    "$isoWeek", "$isoWeekYear", "$isoDayOfWeek",
)  # fmt: skip


class Dates(Drawing):
    """Arithmetic, truncation, parts and parsing, with and without time zones."""

    def date(self, depth: int) -> Any:
        leaves = ("$d", "$e", values.date(self.random), values.date(self.random))
        return self._pick(depth, lambda: self.random.choice(leaves), (self._date, self._date, self._parsed))

    def unit(self) -> Any:
        chance = self.random.random()
        return "nope" if chance < 0.02 else None if chance < 0.04 else self.random.choice(UNITS)

    def _zoned(self, members: dict[str, Any], *, week: bool = False) -> dict[str, Any]:
        chance = self.random.random()
        if chance < 0.5:
            members["timezone"] = self.random.choice(values.ZONES)
        elif chance < 0.54:
            members["timezone"] = self.random.choice((None, "$s", "nope", 5))
        if week and self.random.random() < 0.3:
            members["startOfWeek"] = self.random.choice(("monday", "Sun", "wed", "FRIDAY", "x", None))
        return members

    def _date(self, depth: int) -> Any:
        random = self.random
        kind = random.randrange(6)
        if kind == 0:
            return {random.choice(("$add", "$subtract")): [self.date(depth), self.number(depth)]}
        if kind < 3:
            amount = random.choice((self.small(), random.randint(-400, 400), self.number(depth)))
            members = {"startDate": self.date(depth), "unit": self.unit(), "amount": amount}
            return {random.choice(("$dateAdd", "$dateSubtract")): self._zoned(members)}
        if kind < 5:
            members = {"date": self.date(depth), "unit": self.unit()}
            if random.random() < 0.6:
                members["binSize"] = random.choice((1, 2, 3, 5, 7, 12, 100, self.small()))
            return {"$dateTrunc": self._zoned(members, week=True)}
        return {"$toDate": self.any(depth)}

    def _parsed(self, depth: int) -> Any:
        random = self.random
        if random.random() < 0.5:
            iso = random.random() < 0.4
            members: dict[str, Any] = {
                ("isoWeekYear" if iso else "year"): random.choice((2020, 2021, 1999, 4, self.small()))
            }
            more = ("isoWeek", "isoDayOfWeek") if iso else ("month", "day")
            for field in (*more, "hour", "minute", "second", "millisecond"):
                if random.random() < 0.4:
                    members[field] = random.choice((1, 2, 12, 0, -1, 31, 60, 1000, self.small()))
            return {"$dateFromParts": self._zoned(members)}
        forms = (
            ("%Y-%m-%d", "2020-01-02"), ("%Y-%m-%d", "2020-02-30"), ("%d/%m/%Y %H:%M:%S", "02/01/2020 03:04:05"),
            ("%G-%V-%u", "2020-53-5"), ("%Y-%m-%dT%H:%M:%S.%L%z", "2020-01-02T03:04:05.678+0530"), ("%H:%M", "03:04"),
            (None, "2020-01-02T03:04:05.678Z"), (None, "2020-01-02"), (None, "nope"), (None, "2020-01-02 03:04"), (None, "$s"),
            (None, "$z"),
        )  # fmt: skip
        form, text = random.choice(forms)
        members = {"dateString": text}
        if form is not None:
            members["format"] = form
        for field in ("onError", "onNull"):
            if random.random() < 0.25:
                members[field] = self.leaf()
        return {"$dateFromString": self._zoned(members)}

    def _date_part(self, depth: int) -> Any:
        random = self.random
        if random.random() < 0.2:
            members: dict[str, Any] = {"date": self.date(depth)}
            if random.random() < 0.5:
                members["iso8601"] = random.choice((True, False))
            return {"$dateToParts": self._zoned(members)}
        name = random.choice(DATE_PARTS)
        if random.random() < 0.5:
            return {name: self.date(depth)}
        return {name: self._zoned({"date": self.date(depth)})}
