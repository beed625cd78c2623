"""Allowance for the regular expressions of one query: how much may be compiled for it, and how long one record may take it.

Both count for the query as a whole, so that a thousand expressions are not given a thousand times as much. It belongs to the
thread: compiling and evaluating never wait for anything in between.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from quaestor.errors import UnsupportedQueryError

TIME_LIMIT_S: Final = 0.05
"""How long the engines that may take long may look at one record for one query."""
MOST_WORK: Final = 10_000
"""Steps that all expressions of one query may cost together; each counts once."""

A = TypeVar("A")
T = TypeVar("T")


class _Allowance(threading.local):
    """What is left.

    known: the expressions that have been counted; None: nobody counts.
    work: steps that are left.
    seconds: time that is left for one record; None: each text has the whole.
    """

    known: set[tuple[str, str]] | None = None
    work: int = 0
    seconds: float | None = None


_left: Final = _Allowance()


@contextmanager
def one_query() -> Iterator[None]:
    """Count what is compiled inside for one query; within another one, for that."""
    if _left.known is not None:
        yield
        return
    _left.known, _left.work = set(), MOST_WORK
    try:
        yield
    finally:
        _left.known = None


def charge(expression: tuple[str, str], work: int) -> None:
    """Count an expression. Raises UnsupportedQueryError if it is too much together with those before it.

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
    """The same predicate or expression, with one allowance for each call that is not inside another one."""

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
    """Time that is left for the record, never negative."""
    return TIME_LIMIT_S if _left.seconds is None else _left.seconds


def spent(seconds: float) -> None:
    """Take time off what is left for the record."""
    if _left.seconds is not None:
        _left.seconds = max(0.0, _left.seconds - seconds)
