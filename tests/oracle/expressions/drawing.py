"""Draws of all random expressions: leaves, small numbers, variables, and when to go deeper."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import Any

from tests.oracle.expressions import values


class Drawing(ABC):
    """Draws from random, so the same generator serves Hypothesis (which shrinks) and long plain runs."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.variables: list[str] = []

    @abstractmethod
    def any(self, depth: int) -> Any: ...

    @abstractmethod
    def number(self, depth: int) -> Any: ...

    @abstractmethod
    def boolean(self, depth: int) -> Any: ...

    @abstractmethod
    def string(self, depth: int) -> Any: ...

    @abstractmethod
    def date(self, depth: int) -> Any: ...

    @abstractmethod
    def array(self, depth: int) -> Any: ...

    @abstractmethod
    def object(self, depth: int) -> Any: ...

    def leaf(self, depth: int = 0) -> Any:
        random = self.random
        kind = random.randrange(10)
        if kind < 4:
            return "$" + random.choice(("n", "s", "d", "l", "o", "x", "z", "f", "none", "_id"))
        if kind == 4:
            return "$" + random.choice(("o.a", "o.a.b", "l.a", "x.a.b", "o.none", "l.k", "p.a.b"))
        if kind == 5 and self.variables:
            return "$$" + random.choice(self.variables) + random.choice(("", "", ".a"))
        if kind == 6:
            return random.choice(("$$ROOT", "$$CURRENT.n", "$$ROOT.o.b", "$$REMOVE", "$$CURRENT"))
        return {"$literal": values.value(random)}

    def mistyped(self, depth: int) -> Any:
        return self.any(depth - 1)

    def _pick(self, depth: int, leaves: Callable[[], Any], inner: tuple[Callable[[int], Any], ...]) -> Any:
        chance = self.random.random()
        if chance < 0.05:
            return self.mistyped(depth) if depth > 0 else self.leaf()
        if depth <= 0 or chance < 0.3:
            return leaves()
        return self.random.choice(inner)(depth - 1)

    def small(self) -> Any:
        return self.random.choice((0, 1, 2, 3, -1, -2, 5, 1.0, 2, 1, 0, "$n", 1.5, None, values.number(self.random)))

    def _within(self, names: tuple[str, ...], make: Callable[[], Any]) -> Any:
        self.variables += names
        try:
            return make()
        finally:
            del self.variables[len(self.variables) - len(names) :]
