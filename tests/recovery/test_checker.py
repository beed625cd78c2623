"""The checker itself: it is only worth something if it can fail. First by hand, moment by moment, then on a broken cache."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pymongo
import pytest

from benchmarks.setups.faults.checker import Checker, Served, Violation
from benchmarks.setups.faults.history import History
from benchmarks.setups.faults.load import Load
from benchmarks.setups.faults.world import GROUPS, moving_between, site_server

BOUND_S = 2.0


class Book:
    """Two records, always in one list, and a clock set by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.history = History(2, lambda key, number: 0, clock=lambda: self.now_s)
        self.checker = Checker(self.history, bound_s=BOUND_S)

    def write(self, key: int, begun_s: float, acknowledged_s: float | None) -> int:
        self.now_s = begun_s
        number = self.history.records[key].begin()
        if acknowledged_s is not None:
            self.now_s = acknowledged_s
            self.history.records[key].acknowledge(number, int(acknowledged_s * 1000))
        return number

    def page(self, key: int, number: int, asked_s: float, known: dict[int, int] | None = None) -> str | None:
        return self._ask(None, key, {key: number}, asked_s, known or {})

    def list(self, first: int, second: int, asked_s: float, known: dict[int, int] | None = None) -> str | None:
        return self._ask(0, None, {0: first, 1: second}, asked_s, known or {})

    def _ask(
        self, group: int | None, key: int | None, shown: dict[int, int], asked_s: float, known: dict[int, int]
    ) -> str | None:
        violation: Violation | None = self.checker.check(
            Served(
                worker=0, group=group, key=key, shown=shown, asked_s=asked_s, answered_s=asked_s + 0.001, hit=True,
                known=known,
            )
        )  # fmt: skip
        return None if violation is None else violation.why


@pytest.fixture
def book() -> Book:
    return Book()


def test_the_state_of_now_and_of_any_moment_within_the_bound_is_right(book: Book) -> None:
    book.write(0, 10.0, 10.1)
    assert book.page(0, 1, 10.05) is None, "written, and not yet acknowledged"
    assert book.page(0, 0, 10.05) is None
    assert book.page(0, 0, 12.0) is None
    assert book.page(0, 1, 500.0) is None


def test_an_invalidation_that_was_lost_is_found_out_once_the_bound_is_over(book: Book) -> None:
    book.write(0, 10.0, 10.1)
    assert book.page(0, 0, 12.2) == "stale"
    assert book.checker.violations[0].by_s == pytest.approx(0.1, abs=0.01)


def test_values_written_later_or_never_are_no_answers(book: Book) -> None:
    book.write(0, 10.0, 10.1)
    assert book.page(0, 1, 9.0) == "never"
    assert book.page(0, 7, 11.0) == "never"


def test_a_write_without_an_acknowledgement_may_have_been_performed_or_not(book: Book) -> None:
    book.write(0, 10.0, None)
    assert book.page(0, 0, 100.0) is None
    assert book.page(0, 1, 100.0) is None
    book.write(0, 101.0, 101.1)
    assert book.page(0, 1, 104.0) == "stale"
    assert book.page(0, 0, 104.0) == "stale"


def test_a_list_mixed_from_two_moments_is_no_answer(book: Book) -> None:
    book.write(0, 10.0, 10.1)
    book.write(1, 10.2, 10.3)
    assert book.list(1, 0, 11.0) is None
    assert book.list(0, 1, 11.0) == "never"


def test_a_record_that_is_missing_from_its_list_is_noticed(book: Book) -> None:
    served = Served(worker=0, group=0, key=None, shown={0: 0}, asked_s=1.0, answered_s=1.001, hit=True)
    violation = book.checker.check(served)
    assert violation is not None
    assert violation.why == "never"


def test_after_an_invalidation_was_processed_the_state_before_it_is_wrong_at_once(book: Book) -> None:
    book.write(0, 10.0, 10.1)
    book.write(1, 10.2, 10.3)
    of_the_first = 10_050
    assert book.page(0, 0, 10.5) is None
    assert book.page(0, 0, 10.5, known={0: of_the_first}) == "known"
    assert book.page(0, 1, 10.5, known={0: of_the_first}) is None
    assert book.list(0, 0, 10.5, known={0: of_the_first}) == "known"
    assert book.list(1, 0, 10.5, known={0: of_the_first}) is None


@pytest.mark.timeout(120)
def test_a_cache_that_never_hears_of_a_write_is_found_out(mongo_url: str, prefix: str, tmp_path: Path) -> None:
    """The same load, the same database and the same pages as in the tests of recovery, and a cache that is wrong."""
    environment = {"MONGO_URL": mongo_url, "SITE_DATABASE": prefix}
    app = site_server(tmp_path, "broken", factory="create_broken_app", environment=environment)
    history = History(8, moving_between(GROUPS))
    checker = Checker(history, bound_s=BOUND_S)
    app.start()
    try:
        with pymongo.MongoClient[dict[str, object]](mongo_url) as client:
            load = Load(
                checker, history, client, database=prefix, groups=GROUPS, ports=[app.port], writes_per_s=100,
                reads_per_s=100, seed=random.randrange(10**6),
            )  # fmt: skip
            load.start()
            waiting = threading.Event()
            for _ in range(3_000):
                if checker.violations or waiting.wait(0.01):
                    break
            load.stop()
            client.drop_database(prefix)
    finally:
        app.stop()
    assert checker.violations[0].why == "stale"
    assert checker.violations[0].served.hit
