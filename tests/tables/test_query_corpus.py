"""Cases from the test suites of other systems, each confirmed by a real mongod: we must give the same answers.

One test per area (and share of the large one), so that a run reports every disagreement at once.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

import pytest
from bson import Timestamp

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.invalidation.matching.entities import Filter
from quaestor.invalidation.matching.index import QueryIndex
from quaestor.planning.access_paths import access_paths
from quaestor.query import compile_query, sort_key_function
from quaestor.query.expressions import ExpressionError
from tests.tables.corpus.reader import cases

NOT_YET: frozenset[str] = frozenset()
"""Areas that are refused as unsupported until their operators exist."""
REFUSED = frozenset({"js"})
"""Areas that are refused for good."""
CLOCK = "$$NOW"
SHARES = 8
Case = dict[str, Any]


@cache
def by_area() -> dict[str, list[Case]]:
    areas: dict[str, list[Case]] = defaultdict(list)
    for case in cases("match_cases.jsonl.gz"):
        areas[case["area"]].append(case)
    return areas


def answer(case: Case) -> bool | str:
    try:
        return compile_query(case["filter"]).matches(case["doc"])
    except (MalformedQueryError, ExpressionError):
        return "error"
    except UnsupportedQueryError as error:
        return f"unsupported: {error.reason}"


def disagreements(selected: list[Case]) -> list[str]:
    return [
        f"{case['filter']!r:.300} on {case['doc']!r:.200}: {got!r}, mongod says {case['match']!r} ({case['source']})"
        for case in selected
        if (got := answer(case)) != case["match"]
    ]


def report(wrong: list[str]) -> str:
    return f"{len(wrong)} disagreements, the first of them:\n" + "\n".join(wrong[:20])


def test_no_case_of_the_corpus_is_lost() -> None:
    """All cases are there, and every area is either asserted or named as left out."""
    sizes = {area: len(members) for area, members in by_area().items()}
    assert sum(sizes.values()) == 19_159
    assert sizes["core"] == 14_111
    assert sizes["bits"] == 2_007
    assert set(sizes) >= NOT_YET | REFUSED


@pytest.mark.parametrize("share", range(SHARES))
def test_core_filters_match_what_mongod_matches(share: int) -> None:
    wrong = disagreements(by_area()["core"][share::SHARES])
    assert not wrong, report(wrong)


@pytest.mark.parametrize("area", ["bits", "expr", "geo", "jsonSchema", "text"])
def test_operators_of_their_own_area_match_what_mongod_matches(area: str) -> None:
    if area in NOT_YET:
        pytest.skip(f"{area} is not evaluated yet")
    wrong = disagreements([case for case in by_area()[area] if CLOCK not in repr(case["filter"])])
    assert not wrong, report(wrong)


def test_filters_that_the_clock_alone_changes_are_unsupported() -> None:
    for case in by_area()["expr"]:
        if CLOCK in repr(case["filter"]):
            assert str(answer(case)).startswith("unsupported")


def test_javascript_is_never_evaluated() -> None:
    """$where is refused, as unsupported or, where mongod refuses it too, as malformed."""
    for case in by_area()["js"]:
        got = answer(case)
        assert isinstance(got, str), case
        assert case["match"] != "error" or got == "error" or got.startswith("unsupported"), case


def test_the_index_finds_every_filter_that_mongod_matches() -> None:
    """Each case's filter alone in an index is found from its record, by any of the index's ways of keeping it."""
    hidden = []
    for case in (case for cases_ in by_area().values() for case in cases_ if case["match"] is True):
        try:
            compiled = compile_query(case["filter"])
        except UnsupportedQueryError:
            continue
        index, item = QueryIndex(), Filter(compiled.identity, b"")
        index.add(item, access_paths(compiled.root))
        if item not in index.candidates(case["doc"]):
            hidden.append(f"{case['filter']!r:.300} on {case['doc']!r:.200}, kept by {item.access}")
    assert not hidden, report(hidden)


def as_stored(document: Case) -> Case:
    """A server puts the time in place of an empty timestamp at the top level of what it inserts."""
    return {
        name: Timestamp(2_000_000_000, 1)
        if isinstance(value, Timestamp) and not value.time and not value.inc
        else value
        for name, value in document.items()
    }


def order_disagreement(case: Case) -> str | None:
    documents = [as_stored(document) for document in case["docs"]]
    expected = case["expected_order"]
    try:
        key = sort_key_function(case["sort"])
        got: Any = sorted(range(len(documents)), key=lambda index: key(documents[index]))
    except MalformedQueryError:
        got = "error"
    except UnsupportedQueryError:
        return None if "$meta" in repr(case["sort"]) else f"{case['sort']!r}: unsupported"
    if got == expected:
        return None
    if case["ties"] and isinstance(got, list) and isinstance(expected, list):
        same = [key(documents[index]) for index in got] == [key(documents[index]) for index in expected]
        if same and sorted(got) == sorted(expected):
            return None
    return f"{case['sort']!r:.200} on {documents!r:.300}: {got}, mongod says {expected} ({case['source']})"


def test_documents_are_sorted_as_mongod_sorts_them() -> None:
    wrong = [disagreement for case in cases("sort_cases.jsonl.gz") if (disagreement := order_disagreement(case))]
    assert not wrong, report(wrong)


def window_disagreement(case: Case) -> str | None:
    documents = [as_stored(document) for document in case["docs"]]
    try:
        matches = compile_query(case["filter"]).matches
    except UnsupportedQueryError:
        return None if any(f"'{operator}'" in repr(case["filter"]) for operator in LEFT_OUT) else "unsupported"
    got = [index for index, document in enumerate(documents) if matches(document)]
    if case["sort"]:
        key = sort_key_function(case["sort"])
        got.sort(key=lambda index: key(documents[index]))
    got = got[case["skip"] :]
    if case["limit"]:
        got = got[: abs(case["limit"])]
    if case["expected"] is None:
        right = len(got) == case["count"]
    else:
        right = got == case["expected"] if case["ordered"] else sorted(got) == sorted(case["expected"])
    return None if right else f"{case!r:.400}: {got}"


LEFT_OUT = ("$expr", "$jsonSchema", "$text", "$where")


def test_windows_hold_what_mongod_returns() -> None:
    """Filter, sort, skip and limit together."""
    wrong = [disagreement for case in cases("find_cases.jsonl.gz") if (disagreement := window_disagreement(case))]
    assert not wrong, report(wrong)
