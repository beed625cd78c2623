"""Allowance for the regular expressions of one query: the work to compile them, and the time for one record.

Both bounds hold for the query as a whole, so that a thousand expressions share the allowance of one. The allowance belongs to the
thread: compiling and evaluating never wait for anything in between.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from quaestor.errors import UnsupportedQueryError

TIME_LIMIT_S: Final = 0.05
"""Time in seconds that the engines without a linear bound may spend on one record for one query."""
MOST_WORK: Final = 10_000
"""Steps that all expressions of one query may cost together; a repeated expression counts once."""

A = TypeVar("A")
T = TypeVar("T")


class _Allowance(threading.local):
    """The rest of the allowance.

    known: expressions that were counted; None: nothing is counted.
    work: steps left.
    seconds: time left for one record; None: each text has the whole.
    """

    known: set[tuple[str, str]] | None = None
    work: int = 0
    seconds: float | None = None


_left: Final = _Allowance()


@contextmanager
def one_query() -> Iterator[None]:
    """Count the expressions compiled inside for one query; a nested block counts for the outer query."""
    if _left.known is not None:
        yield
        return
    _left.known, _left.work = set(), MOST_WORK
    try:
        yield
    finally:
        _left.known = None


def counts_expressions() -> bool:
    """Whether the query that is being compiled holds regular expressions, as far as it has been compiled."""
    return bool(_left.known)


def charge(expression: tuple[str, str], work: int) -> None:
    """Count an expression. Raises UnsupportedQueryError if the query's expressions together exceed the allowance.

    expression: its source and options.
    work: its steps.
    """
    known = _left.known
    if known is None or expression in known:
        return
    known.add(expression)
    _left.work -= work
    if _left.work < 0:
        raise UnsupportedQueryError(
            f"a regular expression too many: together they cost more than {MOST_WORK:,} steps to compile"
        )


def within_allowance(evaluate: Callable[[A], T]) -> Callable[[A], T]:
    """Return the same predicate or expression, with one allowance for each outermost call."""

    def limited(argument: A) -> T:
        if _left.seconds is not None:
            return evaluate(argument)
        _left.seconds = TIME_LIMIT_S
        try:
            with one_query():
                return evaluate(argument)
        finally:
            _left.seconds = None

    return limited


def seconds_left() -> float:
    """Return the time left for the record, never negative."""
    return TIME_LIMIT_S if _left.seconds is None else _left.seconds


def spent(seconds: float) -> None:
    """Subtract a duration from the time left for the record."""
    if _left.seconds is not None:
        _left.seconds = max(0.0, _left.seconds - seconds)
