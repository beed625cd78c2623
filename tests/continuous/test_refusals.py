"""Refusals of continuous queries: place, reason and remedy."""

from __future__ import annotations

import pytest

from quaestor.continuous.compilation import compile_query
from quaestor.continuous.sql.refusals import QueryRefusedError
from tests.continuous.checks import CATALOGUE

REFUSED = [
    ("SELECT id, now() AS n FROM m", 1, 12, "current time is a result"),
    ("SELECT id FROM m WHERE hour(now()) = 9", 1, 24, "current time is inside"),
    ("SELECT id FROM m WHERE a < now()\nAND random() < 0.5", 2, 5, "another value each time"),
    ("SELECT id FROM m WHERE now() < now()", 1, 24, "both sides"),
    ("SELECT id FROM m WHERE now() - INTERVAL 1 MONTH > a", 1, 24, "months or years"),
    ("SELECT id FROM m WHERE now() * 2 > a", 1, 24, "current time is inside MUL"),
    ("SELECT id FROM m LIMIT 3", 1, 24, "LIMIT"),
    ("SELECT id FROM nothing", 1, 16, "the table 'nothing' is unknown"),
    ("SELECT id FROM m WHERE id IN (SELECT id FROM m GROUP BY id)", 1, 57, "GROUP is not accepted"),
    ("SELECT k, a FROM m GROUP BY k", 1, 11, "neither grouped nor aggregated"),
    ("SELECT k FROM m GROUP BY k HAVING max(a) < now()", 1, 39, "current time stands beside aggregates"),
    ("SELECT k FROM m GROUP BY k HAVING stddev(k) > 1", 1, 35, "STDDEV is not accepted"),
    ("SELECT k FROM m GROUP BY k HAVING sum(DISTINCT k) > 1", 1, 35, "SUM of DISTINCT"),
    ("SELECT k FROM m GROUP BY k HAVING count(*) FILTER (WHERE a IS NULL) > 1", 1, 35, "FILTER is not accepted"),
    (
        "SELECT k FROM m GROUP BY k HAVING count(*) > ALL (SELECT k FROM r)",
        1,
        35,
        "a subquery stands beside aggregates",
    ),
    ("SELECT 1 AS x FROM m GROUP BY ROLLUP (m.k)", 1, 39, "something else than expressions"),
    ("SELECT k FROM m GROUP BY k LIMIT 3", 1, 34, "LIMIT has no ORDER BY"),
    ("SELECT k FROM m GROUP BY k ORDER BY count(*) LIMIT 3 OFFSET 2", 1, 61, "OFFSET is not accepted"),
    ("SELECT k FROM m WHERE a > now() OR b < now() GROUP BY k", 1, 8, "could count a row twice"),
    ("SELECT m.k FROM m LEFT JOIN r ON r.k = m.k GROUP BY m.k", 1, 8, "could count a row twice"),
    ("SELECT count(*) FROM m", 1, 8, "COUNT is not accepted here"),
    ("SELECT id FROM m WHERE a = (SELECT max(a) FROM r)", 1, 24, "where a value is needed"),
    ("SELECT id FROM m UNION SELECT id, k FROM r", 1, 31, "the second SELECT has 2 columns, the first 1"),
    ("SELECT m.id, r.id FROM m, r", 1, 8, "two columns of the result are named 'id'"),
    ("SELECT * EXCLUDE (k) FROM m", 1, 8, "leaves out or replaces columns"),
    ("SELECT COLUMNS('a.*') FROM m", 1, 8, "a pattern of columns"),
    ("SELECT missing FROM m", 1, 8, "does not fit the tables"),
    ("SELECT id FROM m\nWHERE m.missing = 1", 2, 9, "does not fit the tables"),
    ("SELECT id FROM m WHERE EXISTS (SELECT 1 FROM r WHERE zz = 1)", 1, 54, "does not fit the tables"),
    ("SELECT nothing.* FROM m", 1, 8, "does not fit the tables"),
    ("SELECT id FROM m WHERE", 1, 22, "not SQL"),
    ("DELETE FROM m", 1, 1, "not one SELECT"),
    ("SELECT id FROM m; SELECT id FROM r", 1, 1, "not one SELECT"),
    ("SELECT id FROM m WHERE k = :limit", 1, 24, "has no value"),
    ("SELECT id FROM m WHERE now() > k", 1, 32, "is no timestamp"),
    ("WITH RECURSIVE w AS (SELECT id FROM m UNION SELECT id FROM w) SELECT id FROM w", 1, 16, "recursive"),
    (
        "SELECT id FROM m WHERE a < now() AND b > now() AND a > b + INTERVAL 1 DAY AND now() < now()",
        1,
        79,
        "both sides",
    ),
]


@pytest.mark.parametrize(("text", "line", "column", "reason"), REFUSED)
def test_a_refusal_names_place_reason_and_remedy(text: str, line: int, column: int, reason: str) -> None:
    """A query without exact meaning raises, and the message leads to the part of the text."""
    with pytest.raises(QueryRefusedError) as refusal:
        compile_query(text, CATALOGUE)
    assert reason in refusal.value.reason
    assert (refusal.value.line, refusal.value.column) == (line, column)
    assert refusal.value.remedy


def test_too_many_alternatives_are_refused_with_their_number() -> None:
    """Seven ORs over current time make 128 conjunctions."""
    clauses = " AND ".join(
        f"(a < now() - INTERVAL {number} DAY OR now() < b + INTERVAL {number} DAY)" for number in range(7)
    )
    with pytest.raises(QueryRefusedError, match="make 128 alternatives, more than 64"):
        compile_query(f"SELECT id FROM m WHERE {clauses}", CATALOGUE)


def test_a_short_text_whose_plan_would_be_huge_is_refused() -> None:
    """Each alternative excludes the results of the others, so the text grows with the square of their number: here to 2 MB."""
    text = """(SELECT x1.id FROM v x1
        WHERE COALESCE(x1.a + INTERVAL 3 MICROSECOND > now() + INTERVAL 4 MICROSECOND, x1.a IS NULL))
        INTERSECT (SELECT x3.id FROM m x2, m x3
        WHERE CASE WHEN now() BETWEEN x3.a AND x2.a THEN now() - x3.ts > INTERVAL 1 MICROSECOND
        ELSE now() - (x3.b - INTERVAL 2 MICROSECOND) <> INTERVAL -4 MICROSECOND END)"""
    with pytest.raises(QueryRefusedError, match=r"alternatives.* have [0-9,]+ conditions, more than 5,000"):
        compile_query(text, CATALOGUE)


def test_the_date_of_current_time_is_its_day() -> None:
    """A cast to DATE and CURRENT_DATE give the same query."""
    texts = {
        compile_query(f"SELECT id FROM m WHERE {today} = a", CATALOGUE).monotone.sql()
        for today in ("current_date", "now()::date", "CAST(current_timestamp AS DATE)", "today()")
    }
    assert len(texts) == 1
