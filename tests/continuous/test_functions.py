"""Functions of continuous queries: those of the page run on both engines, all others are refused."""

from __future__ import annotations

import re
from pathlib import Path

import pyspark.sql.functions
import pytest
from sqlglot import exp

from quaestor.continuous.compilation import compile_query
from quaestor.continuous.sql.refusals import QueryRefusedError
from quaestor.continuous.trial import refuse_what_cannot_run
from quaestor.tables.schema import Column, Schema, Type

PAGE = Path(__file__).parents[2] / "docs/continuous/sql.md"
CATALOGUE = {
    "t": Schema(
        (
            Column("s", Type.TEXT), Column("k", Type.BIGINT), Column("x", Type.DOUBLE), Column("f", Type.BOOL),
            Column("a", Type.TIMESTAMP), Column("b", Type.TIMESTAMP), Column("j", Type.JSON),
        )
    )
}  # fmt: skip
_OTHER_NAMES = {
    "case", "cast", "try_cast", "extract", "date", "rlike", "int", "as", "and", "if", "then", "struct", "array", "exists",
}  # fmt: skip
"""Words before a parenthesis that are syntax of Spark, or functions that the Python list of Spark leaves out."""


def documented() -> list[str]:
    """Return the calls of the table of functions."""
    section = PAGE.read_text().partition("\n## Functions\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("|")][2:]
    return [call for row in rows for call in re.findall(r"`([^`]+)`", row)]


@pytest.mark.parametrize("call", documented())
def test_a_documented_function_is_known_to_both_engines(call: str) -> None:
    """DuckDB resolves the call, and Spark has the function that the call becomes."""
    compiled = compile_query(f"SELECT {call} AS result FROM t WHERE now() > a", CATALOGUE)
    refuse_what_cannot_run(compiled, CATALOGUE)
    result = next(item for item in compiled.standard.selects if item.alias == "result").unalias().sql("spark")
    names = {name.lower() for name in re.findall(r"([A-Za-z_0-9]+)\(", result)}
    assert names - _OTHER_NAMES <= {name.lower() for name in dir(pyspark.sql.functions)}


def test_the_page_has_functions() -> None:
    """The table is found, so the test above has cases."""
    assert len(documented()) > 50


@pytest.mark.parametrize(
    "call",
    [
        "nosuchfunction(k)", "reflect('java.lang.System', 'getenv', 'PATH')", "java_method('java.lang.System', 'exit', 0)",
        "getenv('PATH')", "input_file_name()", "current_user", "version()", "getvariable('x')", "current_setting('TimeZone')",
        "assert_true(f)", "raise_error(s)", "pg_sleep(1)", "spark_partition_id()", "hash(s)", "ai_generate(s)", "s.reflect()",
        "row_number() OVER ()",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "text", ["SELECT {} AS result FROM t", "SELECT k FROM t WHERE {} = 1", "SELECT k FROM t JOIN t u ON {}"]
)
def test_another_function_is_refused_by_name_and_place(text: str, call: str) -> None:
    """No text reaches files, the network, settings or the JVM, wherever the call stands."""
    with pytest.raises(
        QueryRefusedError, match=r"\(\) is no function of continuous queries; .*sql\.md#functions"
    ) as refusal:
        compile_query(text.format(call), CATALOGUE)
    assert refusal.value.line == 1


@pytest.mark.parametrize(
    "call", ["repeat(s, 10001)", "repeat(s, k)", "lpad(s, 1000000000, ' ')", "rpad(s, 2 * 9000, 'a')"]
)
def test_a_text_has_a_bounded_length(call: str) -> None:
    """One result of unbounded length would fill the memory of the process."""
    with pytest.raises(QueryRefusedError, match="write a number up to 10000"):
        compile_query(f"SELECT {call} AS result FROM t", CATALOGUE)


def test_a_function_in_from_is_refused() -> None:
    """A query over a file does not wait for a table of that name."""
    with pytest.raises(QueryRefusedError, match=r"read_csv\(\) is no function"):
        compile_query("SELECT * FROM read_csv('/etc/passwd')", CATALOGUE)


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
@pytest.mark.parametrize("clock", ["unix_timestamp()", "age(a)", "clock_timestamp()", "utc_time()", "timeofday()"])
def test_no_function_reads_the_clock_of_an_engine(clock: str, dialect: str) -> None:
    with pytest.raises(QueryRefusedError):
        compile_query(f"SELECT k FROM t WHERE {clock} > b", CATALOGUE, dialect=dialect)


@pytest.mark.parametrize(
    "now", ["utc_timestamp()", "current_datetime()", "systimestamp()", "current_timestamp(3)", "getdate()"]
)
def test_every_spelling_of_current_time_is_the_instant_of_the_run(now: str) -> None:
    compiled = compile_query(f"SELECT k FROM t WHERE {now} > a", CATALOGUE)
    assert compiled.incremental.sql() == compile_query("SELECT k FROM t WHERE now() > a", CATALOGUE).incremental.sql()
    assert not list(compiled.incremental.find_all(exp.CurrentTimestamp, exp.UtcTimestamp, exp.CurrentDatetime))


@pytest.mark.parametrize("today", ["utc_date()", "current_date"])
def test_every_spelling_of_the_day_is_the_day_of_the_run(today: str) -> None:
    compiled = compile_query(f"SELECT k FROM t WHERE {today} > a", CATALOGUE)
    assert compiled.incremental.sql() == compile_query("SELECT k FROM t WHERE today() > a", CATALOGUE).incremental.sql()


def test_current_time_in_another_zone_is_refused() -> None:
    with pytest.raises(QueryRefusedError, match="another time zone"):
        compile_query("SELECT k FROM t WHERE current_datetime('Europe/Berlin') > a", CATALOGUE)


@pytest.mark.parametrize(
    ("call", "remedy"), [("log(x)", "write ln, log2 or log10"), ("EXTRACT(dow FROM a)", "use one of DAY, DOY, HOUR")]
)
def test_a_function_of_two_meanings_is_refused(call: str, remedy: str) -> None:
    """The engines give different values."""
    with pytest.raises(QueryRefusedError, match=remedy):
        compile_query(f"SELECT {call} AS result FROM t", CATALOGUE)
