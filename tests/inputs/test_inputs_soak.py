"""A short soak of the inputs of answers, and caches that are wrong on purpose: a check is only worth something if it can fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.setups.soaked_inputs.asks import any_of
from benchmarks.setups.soaked_inputs.books import Answer, Book, kind, notes, pool, rank
from benchmarks.setups.soaked_inputs.mutations import MUTATIONS
from benchmarks.setups.soaked_inputs.run import RAISED, complaints, run
from benchmarks.setups.soaked_inputs.unseen import INPUTS, unseen

BOUND_S = 2.0
FOUND: dict[str, str] = {"fields": "foreign", "invalidations": "stale", "own writes": "own write", "clock": "clock"}
"""The check that must find each mutation."""


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_no_answer_is_stale_or_foreign(mongo_url: str, tmp_path: Path) -> None:
    """Thousands of answers with inputs of every kind are right beside writes, and every cacheable page is cached."""
    result = run(tmp_path, mongo_url=mongo_url, requests=12_000, seed=11, every=50)
    assert result["raised"] == {}
    assert result["first_wrong"] == []
    assert (result["foreign"], result["stale"], complaints(result)) == (0, 0, [])
    assert result["asked_after_own_writes"] > 0
    assert result["bare_twin"]["the same"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_cache_that_is_wrong_on_purpose_is_found_out(mongo_url: str, tmp_path: Path, mutation: str) -> None:
    """The same pages and the same load, and the product without one of its rules."""
    requests = 20_000 if mutation == "clock" else 12_000
    result = run(tmp_path, mongo_url=mongo_url, requests=requests, seed=11, workers=1, mutation=mutation)
    assert result["of_these"].get(FOUND[mutation], 0) > 0
    assert not [what for what in result["bare_twin"] if what.startswith("found")]


@pytest.mark.slow
def test_unseen_inputs_are_found(mongo_url: str, tmp_path: Path) -> None:
    """Each route is quarantined, and every answer after that is the handler's own; or, of a memo, what was made of it alone is
    not stored, and no answer after that is older than the memo."""
    changes = unseen(tmp_path, mongo_url=mongo_url, seed=11, names=INPUTS)
    assert {name: (change["found"], change["old_afterwards"]) for name, change in changes.items()} == dict.fromkeys(
        INPUTS, (True, 0)
    )


# The check itself, moment by moment


class Clock:
    """Moments that a test sets, for the histories of books."""

    def __init__(self, *made: Book) -> None:
        self.now_s = 0.0
        for book in made:
            for record in book.history.records:
                record._clock = lambda: self.now_s

    def write(self, book: Book, key: int, begun_s: float, acknowledged_s: float) -> int:
        self.now_s = begun_s
        with book.write(key) as number:
            self.now_s = acknowledged_s
        return number


def asked(body: Any, at_s: float, known: dict[int, int] | None = None) -> Answer:
    return Answer(0, "", 200, body, True, at_s, at_s + 0.001, known or {})


def test_an_own_write_is_to_be_seen_at_once() -> None:
    book = notes("a", 1.0, BOUND_S)
    number = Clock(book).write(book, 0, 10.0, 10.1)
    assert book.verdict(asked(None, 10.2), {0: 0, 1: 0, 2: 0}) is None
    assert book.verdict(asked(None, 10.2, {0: number}), {0: 0, 1: 0, 2: 0}) == "own write"
    assert book.verdict(asked(None, 10.2, {0: number}), {0: number, 1: 0, 2: 0}) is None
    assert book.verdict(asked(None, 12.2), {0: 0, 1: 0, 2: 0}) == "stale"


def test_an_order_is_that_of_one_moment() -> None:
    book = kind("k", 1.0, BOUND_S)
    clock = Clock(book)

    def order(numbers: list[int], at_s: float) -> str | None:
        shown = sorted(range(4), key=lambda key: rank(key, numbers[key]))
        return book.verdict(
            asked(None, at_s), {}, together=lambda n: sorted(range(4), key=lambda key: rank(key, n[key])) == shown
        )

    assert order([0, 0, 0, 0], 5.0) is None
    clock.write(book, 0, 10.0, 10.1)
    clock.write(book, 3, 10.2, 10.3)
    clock.write(book, 3, 10.4, 10.5)
    assert order([1, 0, 0, 0], 11.0) is None
    assert order([1, 0, 0, 2], 11.0) is None
    assert order([0, 0, 0, 2], 11.0) == "never"
    assert order([0, 0, 0, 0], 12.2) == "stale"


def test_any_members_will_do_where_the_database_may_choose_but_only_members() -> None:
    book = pool("p", 1.0, BOUND_S)
    clock, judge = Clock(book), any_of(book, 2)
    assert judge(asked([[0, 0], [5, 0]], 1.0)) is None
    assert judge(asked([[0, 0]], 1.0)) == "never", "there are more"
    for number in range(1, 4):
        clock.write(book, 5, 10.0 + number, 10.1 + number)
    assert judge(asked([[0, 0], [5, 3]], 14.0)) == "never", "it has been deleted"
    assert judge(asked([[0, 0], [5, 2]], 14.0)) is None
    assert judge(asked([[0, 0], [5, 2]], 15.2)) == "stale"


def test_exceptions_of_handlers_are_kept_apart_from_other_log_lines() -> None:
    """The last line of a traceback is the reason of a 500; other lines of a log are no reason."""
    log = (
        "WARNING:  Timeout: this is a line of the log\n"
        '  File "app.py", line 252, in performed\n'
        "pymongo.errors.OperationFailure: Unable to acquire IX lock within 5ms. opId: 213\n"
        "KeyError: 'org'\n"
    )
    assert RAISED.findall(log) == [
        "pymongo.errors.OperationFailure: Unable to acquire IX lock within 5ms. opId: 213", "KeyError: 'org'",
    ]  # fmt: skip
