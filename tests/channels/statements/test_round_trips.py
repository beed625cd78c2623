"""Random statements: the text of each is read as an equal statement. Random and hostile texts are read or refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quaestor.channels.statements import Statement, StatementError, parse, written
from quaestor.channels.statements.grammar import KEYWORDS
from quaestor.channels.statements.masking import MOST_CHARACTERS
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
from quaestor.tables.schema import RESERVED, Column, Schema, Type

plain = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
names = st.one_of(plain, st.sampled_from(sorted(KEYWORDS)), st.sampled_from(sorted(KEYWORDS)).map(str.lower))
column_names = names.filter(lambda name: name.lower() not in RESERVED)
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff"), max_size=20)
types = st.sampled_from(Type)
parameters = st.lists(
    st.builds(Parameter, names, st.none() | types), max_size=4, unique_by=lambda one: one.name.lower()
).map(tuple)
columns = st.lists(
    st.builds(Column, column_names, types), min_size=1, max_size=5, unique_by=lambda one: one.name.lower()
)
schemas = columns.map(lambda found: Schema(tuple(found)))
endings = st.sampled_from(Ending)
lengths = st.one_of(st.integers(1_000_000, 10**15), st.integers(1, 10**6).map(lambda seconds: seconds * 1_000_000))
coordinates = st.floats(allow_nan=False, allow_infinity=False)
instants = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)).map(lambda when: when.replace(tzinfo=UTC))
constants: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    coordinates,
    texts,
    instants,
    st.builds(Point, coordinates, coordinates),
    st.builds(Bound, names),
)
values = st.lists(
    st.recursive(constants, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5), max_size=4
)
tuples = values.map(tuple)
ids = st.one_of(texts, st.from_regex(r"[0-9a-f]{8}-[0-9a-f]{4}", fullmatch=True), st.builds(Bound, names))
options = st.dictionaries(
    texts, st.recursive(st.none() | st.integers() | texts, lambda inner: st.lists(inner, max_size=2))
)
queries = st.one_of(
    texts.map(lambda text: f"SELECT '{text.replace(chr(39), chr(39) * 2)}' AS a"),
    st.sampled_from(
        [
            "SELECT t.* FROM t WHERE is_new(t) AND t.a = $a",
            "with x as (select 1) select * from x -- ; }",
            "(SELECT 1) UNION ALL (SELECT 2)",
            "SELECT {'a': [1, 2]} /* '; */ FROM t\n\nWHERE t.b = '{'",
            "FROM t",
        ]
    ),
).map(Body)
starts = st.one_of(st.sampled_from(["now", "beginning"]), instants.map(datetime.isoformat))


def channel(**parts: Any) -> st.SearchStrategy[CreateChannel]:
    """Return channels with these parts."""
    return st.builds(
        CreateChannel,
        name=names,
        period_us=lengths,
        push=st.booleans(),
        start=starts,
        distinct=st.booleans(),
        every_instant=st.booleans(),
        grouped=st.booleans(),
        priority=st.sampled_from(Priority),
        ending=endings,
        **parts,
    )


@st.composite
def datasets(draw: st.DrawFn) -> CreateDataset:
    """Return datasets with columns, or of a type."""
    schema = draw(schemas)
    typed = draw(st.booleans())
    return CreateDataset(
        name=draw(names),
        columns=draw(names) if typed else schema,
        key=tuple(draw(st.lists(st.sampled_from(schema.names), min_size=1, max_size=2, unique=True))),
        active=draw(st.booleans()),
        closed=draw(st.booleans()),
        partitions=draw(st.integers(1, 64)),
        retain_us=draw(st.none() | st.integers(1, 10**15)),
        ending=draw(st.sampled_from([Ending.ERROR, Ending.KEEP])),
    )


def refusal(text: str) -> StatementError | None:
    """Return the error of a text; None: it was read."""
    try:
        parse(text)
    except StatementError as error:
        return error
    return None


CHANNELS = st.one_of(
    channel(using=st.builds(Using, function=names, arity=st.integers(0, 20))),
    channel(parameters=parameters, body=queries),
)
SUBSCRIBES = st.builds(Subscribe, channel=names, values=tuples, broker=names, returning=st.just("") | names)
STATEMENTS: st.SearchStrategy[Statement] = st.one_of(
    st.builds(CreateType, name=names, columns=schemas, closed=st.booleans(), ending=endings),
    datasets(),
    st.builds(CreateFeed, name=names, options=options, ending=endings),
    st.builds(
        ConnectFeed, feed=names, dataset=names, function=st.none() | names, mode=st.none() | st.sampled_from(Mode)
    ),
    st.builds(StartFeed, feed=names),
    st.builds(StopFeed, feed=names),
    st.builds(CreateFunction, name=names, parameters=parameters, body=queries, ending=endings),
    CHANNELS,
    st.builds(CreateBroker, name=names, url=texts, options=options, ending=endings),
    SUBSCRIBES,
    st.builds(Unsubscribe, subscription=ids, channel=names),
    st.builds(ChangeSubscription, subscription=ids, channel=names, values=tuples, broker=st.none() | names),
    st.builds(Pause, kind=st.sampled_from([Kind.CHANNEL, Kind.BROKER, Kind.PROCEDURE]), name=names),
    st.builds(Resume, kind=st.just(Kind.SUBSCRIPTION), name=names, subscription=ids),
    st.builds(AlterChannel, channel=names, period_us=lengths),
    st.builds(AlterChannel, channel=names, priority=st.sampled_from(Priority)),
    st.builds(
        CreateProcedure,
        name=names,
        parameters=parameters,
        body=SUBSCRIBES.map(written).map(Body),
        period_us=st.none() | lengths,
        ending=endings,
    ),
    st.builds(Execute, procedure=names, values=tuples),
    st.builds(MoveSubscriptions, source=names, target=names, channel=st.none() | names),
    st.builds(Balance, channel=names, brokers=st.lists(names, max_size=3).map(tuple)),
    st.builds(Drop, kind=st.sampled_from([*Kind][:-1]), name=names, missing_ok=st.booleans()),
    st.builds(Show, what=st.just("subscriptions"), channel=st.none() | names),
    st.builds(
        Describe, name=plain.filter(lambda name: name.upper() not in KEYWORDS), kind=st.none() | st.just(Kind.FEED)
    ),
    st.builds(Query, body=queries),
    st.builds(Explain, target=st.one_of(st.builds(Query, body=queries), CHANNELS, names), analyze=st.booleans()),
)


@settings(max_examples=400, deadline=None)
@given(statement=STATEMENTS)
def test_the_text_of_a_statement_is_read_as_an_equal_one(statement: Statement) -> None:
    """Names that are keywords, strings with quotes and brackets, and values of every type survive."""
    assert parse(written(statement)) == (statement,)


@pytest.mark.parametrize(
    "text",
    [
        "EXECUTE AS (1)",
        "SUBSCRIBE TO as (1) ON with",
        "CREATE FUNCTION as (p) AS SELECT 1",
        "CREATE PROCEDURE with (p) { SELECT 1 }",
        'CREATE BROKER with AT \'http://b.example\' WITH {"type": "bad"}',
    ],
)
def test_as_and_with_are_names_too(text: str) -> None:
    """A name that could begin a query or options begins neither."""
    (statement,) = parse(text)
    assert parse(written(statement)) == (statement,)


@settings(max_examples=100, deadline=None)
@given(statements=st.lists(STATEMENTS, max_size=4), gap=st.sampled_from([";", "\n;\n;", "\n;/* ; ' */", "\n; -- }\n"]))
def test_statements_do_not_reach_into_each_other(statements: list[Statement], gap: str) -> None:
    """Several statements of a text are those of its parts."""
    assert parse(gap.replace(";", "\n;").join(map(written, statements))) == tuple(statements)


@settings(max_examples=300, deadline=None)
@given(
    text=st.one_of(
        st.text(max_size=60),
        st.lists(
            st.one_of(st.sampled_from([*sorted(KEYWORDS), *"(){}[];,'\"@:?$", "--", "/*", "*/", "1", "\n", "x"]), texts)
        ).map(" ".join),
    )
)
def test_random_text_is_read_or_refused(text: str) -> None:
    """No text raises anything but a StatementError, and its place lies in the text."""
    error = refusal(text)
    if error is not None:
        lines = text.split("\n")
        assert 1 <= error.line <= len(lines)
        assert 1 <= error.column <= len(lines[error.line - 1]) + 1


@settings(max_examples=100, deadline=None)
@given(statement=STATEMENTS, data=st.data())
def test_a_statement_cut_short_is_refused_or_another_statement(statement: Statement, data: st.DataObject) -> None:
    """A text that was cut off raises nothing but a StatementError."""
    text = written(statement)
    cut = text[: data.draw(st.integers(0, len(text)))]
    error = refusal(cut)
    assert error is None or error.reason


@pytest.mark.parametrize("seconds", [0.000001, 1.5, 10, 59.999999, 86_400 * 365 * 99])
def test_durations_keep_their_microseconds(seconds: float) -> None:
    """A duration is written with a unit where one divides it, and as ISO 8601 otherwise."""
    length = timedelta(seconds=seconds) // timedelta(microseconds=1)
    dataset = CreateDataset(name="d", columns="T", key=("a",), retain_us=length)
    assert parse(written(dataset)) == (dataset,)


HOSTILE = {
    "a text that is too long": ("SELECT 1;" * (MOST_CHARACTERS // 9 + 1), "at most 262144 are allowed"),
    "many statements": ("SELECT 1;" * 1_001, "more than 1000 statements"),
    "a long query": (f"SELECT '{'x' * 66_000}'", "at most 65536 are allowed"),
    "a long name": (f"START FEED {'x' * 64}", "the name has 64 letters"),
    "many values": (f"SUBSCRIBE TO c({'1,' * 1_000}1) ON b", "1001 items"),
    "a long number": (f"SUBSCRIBE TO c({'1' * 5_000}) ON b", "at most 64 characters"),
    "deep brackets": (f"SELECT {'(' * 41}1{')' * 41}", "more than 40 deep"),
    "open brackets": ("(" * 100_000, "more than 40 deep"),
    "deep lists": (f"SUBSCRIBE TO c({'[' * 40}{']' * 40}) ON b", "more than 40 deep"),
    "deep options": ("CREATE FEED f WITH " + '{"a":' * 50 + "1" + "}" * 50, "more than 40 deep"),
    "deep negations": (f"SELECT {'NOT ' * 5_000}x", "nested too deeply"),
    "deep cases": (f"SELECT {'CASE WHEN ' * 5_000}", "nested too deeply"),
    "long sums": (f"SELECT {'1+' * 30_000}1", "nested too deeply"),
    "open comments": ("/*" * 100_000, "the comment does not end"),
    "open strings": ("'" + "''" * 100_000, "the string does not end"),
    "many quotes": ("CREATE FEED f WITH {" + '"' * 100_001, "not JSON"),
    "a duration of digits": (f"ALTER CHANNEL c SET PERIOD 'PT{'9' * 60_000}S'", "at most 64 characters"),
    "an endless procedure": (f"CREATE PROCEDURE p() {{ {'START FEED f;' * 10_000} }}", "more than 1000 statements"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.timeout(20)
def test_hostile_texts_are_refused_by_limits(name: str) -> None:
    """Limits of length, depth and number refuse a text; none takes the reader down or holds it up."""
    text, reason = HOSTILE[name]
    with pytest.raises(StatementError, match=reason):
        parse(text)


@pytest.mark.timeout(20)
def test_the_largest_texts_are_read() -> None:
    """A text of a thousand statements, and one with a thousand values, are within the limits."""
    assert len(parse("SUBSCRIBE TO c('x', 1, point(1, 2)) ON b;\n" * 1_000)) == 1_000
    (subscribe,) = parse(f"SUBSCRIBE TO c({'1,' * 999}1) ON b")
    assert isinstance(subscribe, Subscribe)
    assert len(subscribe.values) == 1_000
