"""Statements of every form are read, and their text is read as an equal statement."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from quaestor.channels.statements import Statement, parse, written
from quaestor.channels.statements.model import (
    AlterChannel,
    Balance,
    Body,
    Bound,
    ChangeSubscription,
    ConnectFeed,
    CreateBroker,
    CreateChannel,
    CreateDataset,
    CreateFeed,
    CreateFunction,
    CreateProcedure,
    CreateType,
    Describe,
    Drop,
    Ending,
    Execute,
    Explain,
    Kind,
    Mode,
    MoveSubscriptions,
    Parameter,
    Pause,
    Point,
    Priority,
    Query,
    Resume,
    Show,
    StartFeed,
    StopFeed,
    Subscribe,
    Unsubscribe,
    Using,
)
from quaestor.tables.schema import Column, Schema, Type

OFFICERS = Schema((Column("oid", Type.BIGINT), Column("location", Type.POINT)))
MINUTE_US = 60_000_000

FORMS: tuple[tuple[str, Statement], ...] = (
    (
        "CREATE ACTIVE DATASET Tweets(tid bigint, text string) PRIMARY KEY tid PARTITIONS 4 RETAIN 7 DAYS",
        CreateDataset(
            name="Tweets",
            columns=Schema((Column("tid", Type.BIGINT), Column("text", Type.TEXT))),
            key=("tid",),
            active=True,
            partitions=4,
            retain_us=7 * 24 * 60 * MINUTE_US,
        ),
    ),
    (
        "create dataset o(OfficerLocation) closed if not exists primary key oid, location",
        CreateDataset(name="o", columns="OfficerLocation", key=("oid", "location"), closed=True, ending=Ending.KEEP),
    ),
    ("CREATE TYPE O AS CLOSED { oid: int, location: point? }", CreateType(name="O", columns=OFFICERS, closed=True)),
    (
        "create or replace type O as (oid int, location point)",
        CreateType(name="O", columns=OFFICERS, ending=Ending.REPLACE),
    ),
    (
        'CREATE FEED f WITH {"type": "socket", "a": {"}": "\\"{"}}',
        CreateFeed(name="f", options={"type": "socket", "a": {"}": '"{'}}),
    ),
    ("CONNECT FEED f TO DATASET d", ConnectFeed(feed="f", dataset="d")),
    (
        "CONNECT FEED f TO DATASET d APPLY FUNCTION g AS MERGE",
        ConnectFeed(feed="f", dataset="d", function="g", mode=Mode.MERGE),
    ),
    ("START FEED f", StartFeed(feed="f")),
    ("STOP FEED f", StopFeed(feed="f")),
    (
        "CREATE OR REPLACE FUNCTION f(a bigint, b) AS SELECT * FROM t WHERE t.a = a",
        CreateFunction(
            name="f",
            parameters=(Parameter("a", Type.BIGINT), Parameter("b")),
            body=Body("SELECT * FROM t WHERE t.a = a"),
            ending=Ending.REPLACE,
        ),
    ),
    (
        "CREATE FUNCTION hate(tweet) AS PYTHON 'app.enrichment:hate'",
        CreateFunction(name="hate", parameters=(Parameter("tweet"),), body=Body("app.enrichment:hate"), python=True),
    ),
    (
        'CREATE REPETITIVE CHANNEL Counts USING RecentNearby@1 PERIOD duration("PT10M")',
        CreateChannel(name="Counts", using=Using(function="RecentNearby", arity=1), period_us=10 * MINUTE_US),
    ),
    (
        "CREATE CONTINUOUS PUSH CHANNEL c(oid bigint) PERIOD 10 SECONDS FROM BEGINNING UNSEEN EVERY INSTANT UNGROUPED"
        " { SELECT t.* FROM t WHERE is_new(t) }",
        CreateChannel(
            name="c",
            parameters=(Parameter("oid", Type.BIGINT),),
            period_us=10_000_000,
            push=True,
            start="beginning",
            distinct=True,
            every_instant=True,
            grouped=False,
            body=Body("SELECT t.* FROM t WHERE is_new(t)"),
        ),
    ),
    (
        "CREATE OR REPLACE CONTINUOUS CHANNEL c() PERIOD 'PT0.5H' FROM '2026-11-28T12:00:00+01:00' AS SELECT 1",
        CreateChannel(
            name="c",
            period_us=30 * MINUTE_US,
            start="2026-11-28T11:00:00+00:00",
            body=Body("SELECT 1"),
            ending=Ending.REPLACE,
        ),
    ),
    (
        'CREATE BROKER b AT "http://b.example/api" WITH {"type": "BAD"}',
        CreateBroker(name="b", url="http://b.example/api", options={"type": "BAD"}),
    ),
    (
        "SUBSCRIBE TO c('it''s', -1, 2.5e3, NULL, true, point(-1.5, 2), datetime('2026-01-01'), $x, [1, []]) ON b RETURNING id",
        Subscribe(
            channel="c",
            values=(
                "it's",
                -1,
                2500.0,
                None,
                True,
                Point(-1.5, 2.0),
                datetime(2026, 1, 1, tzinfo=UTC),
                Bound("x"),
                (1, ()),
            ),
            broker="b",
            returning="id",
        ),
    ),
    ("SUBSCRIBE TO c() AMONG a", Subscribe(channel="c", values=(), brokers=("a",))),
    (
        "SUBSCRIBE TO c(1) AMONG a, b RETURNING id",
        Subscribe(channel="c", values=(1,), brokers=("a", "b"), returning="id"),
    ),
    ("UNSUBSCRIBE 12-ab FROM c", Unsubscribe(subscription="12-ab", channel="c")),
    ("UNSUBSCRIBE $id FROM c", Unsubscribe(subscription=Bound("id"), channel="c")),
    (
        "CHANGE SUBSCRIPTION 'x' ON c (1) TO b",
        ChangeSubscription(subscription="x", channel="c", values=(1,), broker="b"),
    ),
    ("CHANGE SUBSCRIPTION 'x' ON c TO b", ChangeSubscription(subscription="x", channel="c", broker="b")),
    ("CHANGE SUBSCRIPTIONS ON b TO b2", MoveSubscriptions(source="b", target="b2")),
    ("CHANGE SUBSCRIPTIONS ON b OF c TO b2", MoveSubscriptions(source="b", target="b2", channel="c")),
    ("BALANCE CHANNEL c", Balance(channel="c")),
    ("BALANCE CHANNEL c AMONG a, b", Balance(channel="c", brokers=("a", "b"))),
    ("PAUSE CHANNEL c", Pause(kind=Kind.CHANNEL, name="c")),
    ("RESUME BROKER b", Resume(kind=Kind.BROKER, name="b")),
    ("PAUSE PROCEDURE p", Pause(kind=Kind.PROCEDURE, name="p")),
    ("RESUME SUBSCRIPTION x ON c", Resume(kind=Kind.SUBSCRIPTION, name="c", subscription="x")),
    ("ALTER CHANNEL c SET PERIOD 1 MINUTE", AlterChannel(channel="c", period_us=MINUTE_US)),
    ("ALTER CHANNEL c SET priority Low", AlterChannel(channel="c", priority=Priority.LOW)),
    (
        "CREATE REPETITIVE CHANNEL high USING priority@1 PERIOD 10 SECONDS PRIORITY HIGH",
        CreateChannel(
            name="high", using=Using(function="priority", arity=1), period_us=10_000_000, priority=Priority.HIGH
        ),
    ),
    (
        "CREATE PROCEDURE p(a) { SUBSCRIBE TO c($a) ON b; } PERIOD 1 MINUTE",
        CreateProcedure(
            name="p", parameters=(Parameter("a"),), body=Body("SUBSCRIBE TO c($a) ON b;"), period_us=MINUTE_US
        ),
    ),
    ("EXECUTE p(1, 'x')", Execute(procedure="p", values=(1, "x"))),
    ("DROP CHANNEL c IF EXISTS", Drop(kind=Kind.CHANNEL, name="c", missing_ok=True)),
    ("SHOW SUBSCRIPTIONS OF c", Show(what="subscriptions", channel="c")),
    ("SHOW SHARING", Show(what="sharing")),
    ("DESCRIBE d", Describe(name="d")),
    ("DESCRIBE DATASET d", Describe(name="d", kind=Kind.DATASET)),
    ("EXPLAIN ANALYZE SELECT 1", Explain(target=Query(body=Body("SELECT 1")), analyze=True)),
    ("EXPLAIN CHANNEL c", Explain(target="c")),
    (
        "EXPLAIN CREATE REPETITIVE CHANNEL c USING f@0 PERIOD 1 MINUTE",
        Explain(target=CreateChannel(name="c", using=Using(function="f", arity=0), period_us=MINUTE_US)),
    ),
    ("WITH x AS (SELECT ';' AS a) SELECT * FROM x", Query(body=Body("WITH x AS (SELECT ';' AS a) SELECT * FROM x"))),
    ("(SELECT 1) UNION (SELECT 2)", Query(body=Body("(SELECT 1) UNION (SELECT 2)"))),
)


@pytest.mark.parametrize(("text", "statement"), FORMS, ids=[text[:40] for text, _ in FORMS])
def test_each_form_is_read_and_printed(text: str, statement: Statement) -> None:
    """The text is read as this statement, and the statement's own text as an equal one."""
    assert parse(text) == (statement,)
    assert parse(written(statement)) == (statement,)


def test_keywords_have_any_case_and_are_names_where_no_keyword_is_expected() -> None:
    """A column may be named `key`, a dataset `channel`."""
    read = parse("cReAtE dataset channel(key bigint, point point, select text) primary KEY key, select")
    assert isinstance(read[0], CreateDataset)
    assert (read[0].name, read[0].key) == ("channel", ("key", "select"))


def test_several_statements_with_comments() -> None:
    """Comments of both kinds stand anywhere, also nested ones, and hide semicolons and quotes."""
    text = """
    -- it's one; of many
    START FEED f; /* STOP FEED f; /* 'nested */ " */
    STOP /* here */ FEED f
    ;; SELECT 1 -- the end; of all
    """
    assert parse(text) == (
        StartFeed(feed="f"),
        StopFeed(feed="f"),
        Query(body=Body("SELECT 1 -- the end; of all")),
    )


def test_places_are_those_of_the_whole_text() -> None:
    """Each statement and each body knows its line and column."""
    first, second = parse("START FEED f;\n  CREATE CONTINUOUS CHANNEL c() PERIOD 1 HOUR {\n\n   SELECT\n 1 }")
    assert isinstance(second, CreateChannel)
    assert second.body is not None
    assert (first.place, second.place, second.body.place) == ((1, 1), (2, 3), (4, 4))
    assert second.body.located(1, 8) == (4, 11)
    assert second.body.located(2, 2) == (5, 2)


def test_brackets_and_ends_inside_a_body_belong_to_it() -> None:
    """Strings, quoted names and comments of a query may hold what ends a statement."""
    body = """SELECT ';', "a}" FROM t -- }\n WHERE x = {'k': ['}']} /* ; */"""
    channel, after = parse(f"CREATE CONTINUOUS CHANNEL c() PERIOD 1 HOUR {{{body}}}; START FEED f")
    assert isinstance(channel, CreateChannel)
    assert channel.body == Body(body)
    assert after == StartFeed(feed="f")
