"""Wrong statements: each has its exact line, column, reason and expectation."""

from __future__ import annotations

import pytest

from quaestor.channels.statements import StatementError, parse

BEGINNINGS = (
    "ALTER, BALANCE, CHANGE, CONNECT, CREATE, DESCRIBE, DROP, EXECUTE, EXPLAIN, PAUSE, RESUME, SHOW, START, STOP, SUBSCRIBE,"
    " UNSUBSCRIBE, ';', a query or the end of the text"
)
VALUES = "DATETIME, FALSE, NULL, POINT, TIMESTAMP, TRUE, $name"

WRONG: tuple[tuple[str, int, int, str], ...] = (
    ("creat x", 1, 1, f"unexpected 'creat'; expected {BEGINNINGS}"),
    ("START FEED f;\n INSERT INTO x", 2, 2, f"unexpected 'INSERT'; expected {BEGINNINGS}"),
    (
        "create",
        1,
        7,
        "the statement does not end here; expected ACTIVE, BROKER, CONTINUOUS, DATASET, FEED, FUNCTION, OR,"
        " PROCEDURE, REPETITIVE or TYPE",
    ),
    ("create dataset d(a int) primry key a", 1, 25, "unexpected 'primry'; expected CLOSED, IF, OPEN or PRIMARY"),
    ("create dataset d(a int) primary key b", 1, 37, "the key 'b' is no column; expected a"),
    (
        "create dataset d(a int,\n A int) primary key a",
        2,
        2,
        "two columns are named 'A' (SQL ignores case): rename one",
    ),
    (
        "create dataset d(a foo) primary key a",
        1,
        20,
        "there is no type 'foo'; the types are bigint, double, decimal, text, bool, timestamp, bytes, json, point",
    ),
    ("create dataset d(a int) primary key a partitions 65", 1, 39, "65 partitions; expected 1 to 64"),
    ("create dataset d(ts int) primary key ts", 1, 18, "a column must not be named 'ts': rename it"),
    ("create or replace feed f if not exists with {}", 1, 26, "OR REPLACE and IF NOT EXISTS exclude each other"),
    ("create feed x", 1, 14, "the statement does not end here; expected IF or WITH"),
    (
        "create feed x with {'a': 1}",
        1,
        21,
        "the options are not JSON: Expecting property name enclosed in double quotes",
    ),
    ('create feed x with {\n"a": }', 2, 6, "the options are not JSON: Expecting value"),
    ("create broker b at http://x", 1, 20, "unexpected 'http'; expected a string"),
    ("create function f() as delete from x", 1, 24, "unexpected 'delete'; expected PYTHON or a query"),
    ("create function f(a, A) as select 1", 1, 22, "two parameters are named 'A'; rename one"),
    (
        "create function f() as python 'os.system'",
        1,
        31,
        "'os.system' is no reference to Python; expected 'module:function'",
    ),
    (
        "create function f() as (drop table x)",
        1,
        25,
        "a part of the query is missing or misplaced near 'drop'",
    ),
    ("create continuous channel c() period 1 hour {}", 1, 46, "unexpected '}'; expected a query"),
    ("create continuous channel c() period 1 hour as", 1, 47, "the statement does not end here; expected a query"),
    (
        "create continuous channel c() period 1 hour { select 1; drop table x }",
        1,
        47,
        "the body is not one query; expected one SELECT, or SELECTs joined by UNION",
    ),
    (
        "create continuous channel c() period 1 hour {\n  select a b\n  c }",
        3,
        3,
        "invalid expression near 'c'",
    ),
    (
        "create continuous channel c() period 1 hour { select a b c }",
        1,
        58,
        "invalid expression near 'c'",
    ),
    (
        "create continuous channel c() period 1 hour distinct unseen { select 1 }",
        1,
        54,
        "the option is there twice; delete one",
    ),
    (
        "create continuous channel c() period 1 hour from 'today' { select 1 }",
        1,
        50,
        "'today' is no instant in ISO 8601; write 2026-11-28T12:00:00Z",
    ),
    ("alter channel c set period duration('P1M')", 1, 28, "'P1M' has years or months, whose length varies; write days"),
    ("alter channel c set period 'P1Y'", 1, 28, "'P1Y' has years or months, whose length varies; write days"),
    ("alter channel c set period '10 s'", 1, 28, "'10 s' is no duration in ISO 8601; write PT10S, PT5M or P1D"),
    (
        "alter channel c set period 3 months",
        1,
        30,
        "unexpected 'months'; expected DAYS, HOURS, MINUTES, SECONDS or WEEKS",
    ),
    ("alter channel c set period 0 seconds", 1, 28, "a duration is longer than zero, and at most 100 years"),
    ("alter channel c set period 'PT0.1S'", 1, 28, "the period is too short; expected 1 second or more"),
    ("alter channel c set period 99999999 weeks", 1, 28, "a duration is longer than zero, and at most 100 years"),
    ("subscribe to c(1,) on b", 1, 18, f"unexpected ')'; expected {VALUES}, '[', a number or a string"),
    ("subscribe to c(x) on b", 1, 16, f"unexpected 'x'; expected {VALUES}, ')', '[', a number or a string"),
    ("subscribe to c(1 + 1) on b", 1, 18, "unexpected '+'; expected ')' or ','"),
    ("subscribe to c(1e999) on b", 1, 16, "the number is out of the range of double"),
    (
        "subscribe to c(9223372036854775808) on b",
        1,
        16,
        "the number is out of the range of bigint; write it with a point, or as a string",
    ),
    ("subscribe to c(1", 1, 15, "'(' is not closed; expected ')'"),
    ("subscribe to c(1]", 1, 17, "']' closes '(' of line 1; expected ')'"),
    ("subscribe to c(1)) on b", 1, 18, "')' closes nothing; delete it"),
    ("subscribe to c('x) on b", 1, 16, "the string does not end; expected ' at the end of the string"),
    ("start feed f /* x", 1, 14, "the comment does not end; expected */"),
    ("start feed f stop feed g", 1, 14, "unexpected 'stop'; expected ';' or the end of the text"),
    ("unsubscribe from c", 1, 18, "unexpected 'c'; expected FROM"),
    ("drop channel\n", 1, 13, "the statement does not end here; expected a name"),
    ("drop table x", 1, 6, "unexpected 'table'; expected BROKER, CHANNEL, DATASET, FEED, FUNCTION, PROCEDURE or TYPE"),
    ("explain drop channel c", 1, 9, "unexpected 'drop'; expected ANALYZE, CHANNEL, CREATE or a query"),
    ("create procedure p() { create procedure q() { select 1 } }", 1, 24, "a procedure cannot create a procedure"),
    ("create procedure p() { start feed f; stop feed f }", 1, 24, "a procedure has one statement, not 2"),
    ("\n create procedure p() { subscribe\n to (1) on b }", 3, 5, "unexpected '('; expected a name"),
    ("select 'x", 1, 8, "the string does not end; expected ' at the end of the string"),
    ("start feed \x00f", 1, 12, "the character U+0000 is not allowed; delete it"),
    ("start feed \ud800", 1, 12, "the character U+D800 is not allowed; delete it"),
    ("start feed f\u200b", 1, 13, "unexpected '\\u200b'; expected ';' or the end of the text"),
    ("start feed größe", 1, 14, "unexpected 'öße'; expected ';' or the end of the text"),
)


@pytest.mark.parametrize(("text", "line", "column", "message"), WRONG, ids=[ascii(case[0])[:50] for case in WRONG])
def test_each_wrong_statement_has_its_error(text: str, line: int, column: int, message: str) -> None:
    """The error names the place of the fault, and what may stand there."""
    with pytest.raises(StatementError) as caught:
        parse(text)
    assert str(caught.value) == f"line {line}, column {column}: {message}"
    assert (caught.value.line, caught.value.column) == (line, column)


def test_the_caret_stands_under_the_fault() -> None:
    """Tabs before the fault are kept, so that the caret is in the same column on a terminal."""
    text = "START FEED f;\n\tDROP table x"
    with pytest.raises(StatementError) as caught:
        parse(text)
    assert caught.value.caret(text) == "\tDROP table x\n\t     ^"
