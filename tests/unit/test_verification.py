"""Verification without a server: comparison of answers, end of a probation, number of verified hits."""

from __future__ import annotations

import gzip
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from quaestor.errors import ConfigurationError
from quaestor.model import CapturedRead, Operation, Query
from quaestor.read_path.probation import MOST_ROUTES, Probation
from quaestor.read_path.quarantine_trial import ENOUGH, MOST_RUNS, Trial
from quaestor.read_path.verification import Finding, Fingerprint, chosen_otherwise, differences, fingerprint, reads_more
from quaestor.read_path.verification_samples import MOST_SAMPLES, Samples
from quaestor.settings import Settings


def read(**filters: Any) -> CapturedRead:
    return CapturedRead(
        query=Query(namespace="shop.items", operation=Operation.FIND, filter=filters), read_at=1, ids=None
    )


def of(
    body: bytes = b"1", *, status: int = 200, reads: tuple[CapturedRead, ...] = (read(a=1),), **headers: str
) -> Fingerprint:
    fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return fingerprint(status, fields, body, reads)


# What is compared


@pytest.mark.parametrize(
    ("again", "differs"),
    [
        (of(), ()),
        (of(b"2"), ("body",)),
        (of(status=404), ("status",)),
        (of(reads=(read(a=2),)), ("queries",)),
        (of(reads=()), ("queries",)),
        (of(reads=(read(a=1), read(a=1))), ()),
        (of(content_type="text/html"), ("content-type",)),
        (of(location="/b", etag='"1"'), ("etag", "location")),
        (of(b"2", status=201, reads=()), ("status", "body", "queries")),
        (of(date="now", x_request_id="7", set_cookie="a=1"), ()),
    ],
)
def test_answers_differ_by_the_fields_that_a_client_uses(again: Fingerprint, differs: tuple[str, ...]) -> None:
    """Status, body, type, target, validator and queries count;
    fields that differ from request to request anyway do not.
    """
    assert differences(of(), again) == differs


def found(*ids: int, query: Query) -> Fingerprint:
    return of(repr(ids).encode(), reads=(CapturedRead(query=query, read_at=1, ids=ids),))


def test_a_free_choice_of_the_database_is_recognised() -> None:
    """The database may choose if a query leaves its order open: as many records, others or in another order."""
    free = Query(namespace="shop.items", operation=Operation.FIND, filter={"a": 1}, limit=2)
    bound = replace(free, sort=(("_id", 1),))
    assert chosen_otherwise(found(1, 2, query=free), found(2, 1, query=free))
    assert chosen_otherwise(found(1, 2, query=free), found(3, 4, query=free))
    assert not chosen_otherwise(found(1, 2, query=free), found(1, 2, query=free))
    assert not chosen_otherwise(found(1, 2, query=free), found(1, query=free))
    assert not chosen_otherwise(found(1, 2, query=bound), found(3, 4, query=bound))
    assert not chosen_otherwise(found(1, 2, query=free), found(3, 4, query=replace(free, filter={"a": 2})))


def test_equal_contents_are_equal_although_they_were_packed_at_different_times() -> None:
    """A gzip tells when it was made."""
    first, second = (of(gzip.compress(b"text" * 99_999, mtime=at), content_encoding="gzip") for at in (1, 2))
    assert first == second
    assert first.size_bytes == 4 * 99_999
    assert differences(first, of(gzip.compress(b"else", mtime=1), content_encoding="gzip")) == ("body",)


@pytest.mark.parametrize("body", [b"", b"no gzip", gzip.compress(b"text", mtime=0)[:-4]])
def test_bodies_that_cannot_be_unpacked_are_compared_as_they_are(body: bytes) -> None:
    assert of(body, content_encoding="gzip").size_bytes == len(body)


def test_a_fingerprint_reveals_nothing_of_its_answer() -> None:
    assert "secret" not in repr(of(b"secret", reads=(read(name="secret"),)))


# Probation


def probation(answers: int = 2) -> Probation:
    return Probation(answers=answers, ttl_ms=100, quarantine_ms=1_000)


def test_a_route_has_passed_when_each_of_its_first_answers_was_found_the_same_twice() -> None:
    book = probation()
    assert book.on_probation("a")
    for _ in range(3):
        assert book.judge("a", Finding.SAME, ()) is Finding.SAME
        assert not book.begin("b") or book.on_probation("b")
    book.begin("a")
    for _ in range(4):
        assert book.on_probation("a")
        book.judge("a", Finding.SAME, ())
    assert not book.on_probation("a")
    assert not book.begin("a")


def test_only_so_many_answers_are_verified_at_a_time() -> None:
    book = probation()
    assert [book.begin("a") for _ in range(3)] == [True, True, False]
    book.end("a")
    assert book.begin("a")


def test_an_excused_difference_proves_nothing_but_does_not_go_on_for_ever() -> None:
    book = probation()
    book.begin("a")
    judged = 0
    while book.on_probation("a"):
        assert book.judge("a", Finding.EXCUSED, ("body",)) is Finding.EXCUSED
        judged += 1
    assert judged == 40


def test_other_queries_are_excused_once_and_other_answers_never() -> None:
    """Programs read their settings once and keep them."""
    book = probation()
    book.begin("a")
    assert book.judge("a", Finding.DIVERGED, ("queries",)) is Finding.EXCUSED
    assert book.judge("a", Finding.DIVERGED, ("queries",)) is Finding.DIVERGED
    book.begin("b")
    assert book.judge("b", Finding.DIVERGED, ("body",)) is Finding.DIVERGED
    assert book.judge("b", Finding.DIVERGED, ("body", "queries")) is Finding.DIVERGED


def test_an_answer_that_is_made_of_further_queries_is_not_excused() -> None:
    """A handler does not read later what it did not read at first, unless it kept that and has renewed it."""
    book = probation()
    book.begin("a")
    assert reads_more(of(), of(reads=(read(a=1), read(a=2))))
    assert not reads_more(of(), of())
    assert not reads_more(of(reads=(read(a=1), read(a=2))), of())
    assert book.judge("a", Finding.DIVERGED, ("queries",), more=True) is Finding.DIVERGED


def test_evidence_against_a_route_puts_the_route_on_probation_again_but_not_all_the_time() -> None:
    book = probation()
    book.doubt("unknown", now_ms=0)

    def passes() -> None:
        book.begin("a")
        while book.on_probation("a"):
            book.judge("a", Finding.SAME, ())

    passes()
    book.doubt("a", now_ms=10)
    assert book.on_probation("a")
    passes()
    book.doubt("a", now_ms=1_009)
    assert not book.on_probation("a")
    book.doubt("a", now_ms=1_010)
    assert book.on_probation("a")


def test_a_quarantine_names_its_route_and_ends() -> None:
    book = probation()
    book.begin("a")
    book.begin_anew("a")
    book.quarantine("a", "GET a", ("body",), now_ms=5)
    assert book.barred("a") == "diverged"
    assert [(quarantine.route, quarantine.differs, quarantine.until_ms) for quarantine in book.quarantines] == [
        ("GET a", ("body",), 1_005)
    ]
    book.release("a")
    assert not book.barred("a")
    assert book.on_probation("a")


def test_without_probation_nothing_is_bounded_and_routes_beyond_those_remembered_are_like_passed_ones() -> None:
    assert not probation(0).on_probation("a")
    book = probation()
    for route in range(MOST_ROUTES):
        book.begin(route)
    assert not book.begin("one more")
    assert not book.on_probation("one more")


# The share of the hits


def chosen(samples: Samples, served: Sequence[tuple[tuple[str, ...], int]], seconds: int = 1) -> int:
    return sum(len(samples.choose(served)) for _ in range(seconds))


def test_the_budget_holds_however_much_is_served() -> None:
    """The budget is so many a second, of all entries together; an unused part is not saved."""
    samples = Samples(share=1.0, per_second=3)
    served = [((str(n),), 1_000) for n in range(100)]
    for registrations, _ in served:
        samples.keep(registrations, lambda: None)
    assert chosen(samples, [], seconds=50) == 0
    assert chosen(samples, served) == 3
    assert chosen(samples, served, seconds=10) == 30


def test_a_budget_below_one_a_second_is_kept_too() -> None:
    samples = Samples(share=1.0, per_second=0.25)
    samples.keep(("a",), lambda: None)
    assert chosen(samples, [(("a",), 9)], seconds=40) == 10


def test_the_share_is_of_the_hits() -> None:
    samples = Samples(share=0.001, per_second=1_000, uniform=random.Random(7).random)
    samples.keep(("a",), lambda: None)
    assert 10 <= chosen(samples, [(("a",), 10)], seconds=2_000) <= 30
    assert chosen(samples, [(("not kept",), 10**6)], seconds=100) == 0


@pytest.mark.parametrize("off", [{"share": 0.0, "per_second": 1.0}, {"share": 1.0, "per_second": 0.0}])
def test_nothing_is_kept_and_nothing_chosen_when_it_is_off(off: dict[str, Any]) -> None:
    samples = Samples(**off)
    assert not samples.wanted(1)
    samples.keep(("a",), lambda: None)
    assert chosen(samples, [(("a",), 100)], seconds=10) == 0


def test_samples_are_bounded_in_number_and_in_pace() -> None:
    samples = Samples(share=1.0, per_second=1)
    assert [samples.wanted(now_ms) for now_ms in (100, 101, 149, 150, 50)] == [True, False, False, True, True]
    for n in range(2 * MOST_SAMPLES):
        samples.keep((str(n),), lambda: None)
    assert len(samples) == MOST_SAMPLES
    samples.drop((str(2 * MOST_SAMPLES - 1),))
    assert len(samples) == MOST_SAMPLES - 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"probation_answers": -1},
        {"probation_ttl_ms": 0},
        {"verify_share": 1.5},
        {"verify_per_second": -1.0},
        {"quarantine_ms": 0},
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Settings(**wrong)


def test_a_trial_ends_when_enough_runs_agree_and_never_for_what_differs_or_reads_less() -> None:
    entry, other, memo = of(b"a"), of(b"b"), of(b"b", reads=())
    trial = Trial(entry, other)
    assert [trial.judge(other) for _ in range(ENOUGH)] == [None] * (ENOUGH - 1) + [True]
    trial = Trial(entry, other)
    verdicts = [trial.judge(other if number % 3 else entry) for number in range(MOST_RUNS)]
    assert verdicts == [None] * (MOST_RUNS - 1) + [False]
    trial = Trial(entry, memo)
    assert True not in [trial.judge(memo) for _ in range(MOST_RUNS)]
    trial = Trial(entry, other)
    assert True not in [trial.judge(None) for _ in range(MOST_RUNS)]
