"""Random expressions that give a number: computed, rounded, counted, converted."""

from __future__ import annotations

from typing import Any

from tests.oracle.expressions import values
from tests.oracle.expressions.dates import Dates

TRIGONOMETRY = (
    "$sin", "$cos", "$tan", "$asin", "$acos", "$atan", "$sinh", "$cosh", "$tanh", "$asinh", "$acosh", "$atanh",
    "$degreesToRadians", "$radiansToDegrees",
)  # fmt: skip
TRANSCENDENTAL = ("$sqrt", "$exp", "$ln", "$log10")
ROUNDING = ("$abs", "$ceil", "$floor", "$round", "$trunc")


class Numbers(Dates):
    """Arithmetic, functions of one number, and what is counted or compared."""

    def number(self, depth: int) -> Any:
        return self._pick(depth, self._number_leaf, (self._arithmetic, self._arithmetic, self._unary, self._counted))

    def _number_leaf(self) -> Any:
        if self.variables and self.random.random() < 0.3:
            return "$$" + self.random.choice(self.variables)
        return self.random.choice(("$n", "$m", "$n", values.number(self.random), values.number(self.random)))

    def _arithmetic(self, depth: int) -> Any:
        random, n = self.random, self.number
        kind = random.randrange(12)
        if kind < 4:
            name = random.choice(
                ("$add", "$multiply", "$add", "$sum", "$avg", "$min", "$max", "$stdDevPop", "$stdDevSamp")
            )
            operands = [n(depth) for _ in range(random.randrange(1, 5))]
            return {name: operands}
        if kind < 8:
            return {random.choice(("$subtract", "$divide", "$mod", "$subtract")): [n(depth), n(depth)]}
        if kind == 8:
            return {random.choice(("$pow", "$log", "$atan2")): [n(depth), n(depth)]}
        if kind == 9:
            return {random.choice(("$round", "$trunc")): [n(depth), self.small()]}
        if kind == 10:
            return {"$subtract": [self.date(depth), self.date(depth)]}
        return {random.choice(("$sum", "$avg", "$min", "$max", "$stdDevPop", "$stdDevSamp")): self.array(depth)}

    def _unary(self, depth: int) -> Any:
        name = self.random.choice((*ROUNDING, *ROUNDING, *TRANSCENDENTAL, *TRIGONOMETRY))
        return {name: self.random.choice((self.number(depth), [self.number(depth)]))}

    def _counted(self, depth: int) -> Any:
        random = self.random
        kind = random.randrange(9)
        if kind == 0:
            return {"$size": [self.array(depth)]}
        if kind == 1:
            return {random.choice(("$strLenBytes", "$strLenCP")): self.string(depth)}
        if kind == 2:
            return {random.choice(("$strcasecmp", "$cmp")): [self.string(depth), self.string(depth)]}
        if kind == 3:
            operands = [self.string(depth), self.string(0), *[self.small() for _ in range(random.randrange(3))]]
            return {random.choice(("$indexOfBytes", "$indexOfCP")): operands}
        if kind == 4:
            operands = [self.array(depth), self.leaf(), *[self.small() for _ in range(random.randrange(3))]]
            return {"$indexOfArray": operands}
        if kind == 5:
            return self._date_part(depth)
        if kind == 6:
            return {random.choice(("$toInt", "$toLong", "$toDouble", "$toDecimal")): self.any(depth)}
        if kind == 7:
            return {"$cmp": [self.any(depth), self.any(depth)]}
        return {
            "$dateDiff": self._zoned(
                {"startDate": self.date(depth), "endDate": self.date(depth), "unit": self.unit()}, week=True
            )
        }
