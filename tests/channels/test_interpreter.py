"""Statements change the catalogue, and answer with rows; wrong ones change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quaestor.channels.datasets import Dataset, dataset_names
from quaestor.channels.definitions import Definition, State
from quaestor.channels.rewriting.definition import ChannelDefinition, Parameter
from quaestor.channels.runs.results import Results
from quaestor.channels.runs.run import Runner
from quaestor.channels.statements import StatementError
from quaestor.channels.statements.model import Kind, Point, Priority
from quaestor.channels.subscriptions import Subscriptions
from quaestor.continuous.delivery.batch import moment
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.tables.schema import Type
from tests.channels.statements_world import StatementsWorld


@pytest.fixture
def world(tmp_path: Path) -> StatementsWorld:
    created = StatementsWorld(tmp_path)
    created.police()
    return created


def tweets(world: StatementsWorld, *records: dict[str, Any]) -> None:
    """Insert tweets."""
    Dataset.open(world.channels.parts.catalogue, "Tweets").insert(records)


def refused(world: StatementsWorld, text: str, message: str, *, user: str = "", **values: Any) -> StatementError:
    """Assert that statements are refused with a message, and return the error."""
    with pytest.raises(StatementError, match=message or ".+") as caught:
        world.run(text, user=user, **values)
    return caught.value


def test_a_channel_is_created_subscribed_run_and_dropped(world: StatementsWorld) -> None:
    """The whole life cycle by statements; the run is that of the service."""
    (subscription,) = world.rows("SUBSCRIBE TO Local('OC') ON station RETURNING key")[0]
    tweets(world, {"tid": 1, "area_code": "OC", "text": "a"}, {"tid": 2, "area_code": "LA", "text": "b"})
    parts = world.channels.parts
    (definition,) = parts.definitions.channels()
    assert definition == ChannelDefinition(
        name="Local",
        body="SELECT t.tid, t.text FROM Tweets t WHERE is_new(t) AND t.area_code = area",
        parameters=(Parameter("area", Type.TEXT),),
        period="10s",
        start="beginning",
    )
    compiled = parts.compiled(parts.definitions.get(Kind.CHANNEL, "local"))
    outcome = Runner(parts.catalogue, DuckDbExecutor(threads=1)).run(compiled, 1)
    assert outcome.rows == 1
    assert Results(parts.catalogue, "Local").progress().run == outcome.run
    assert world.rows("SHOW RUNS OF Local") == [("Local", moment(outcome.run), 1)]
    assert world.rows("SHOW SUBSCRIPTIONS OF Local") == [("Local", subscription, "station", ["OC"], "", False)]
    world.run(
        f"CHANGE SUBSCRIPTION '{subscription}' ON Local ('LA') TO station; PAUSE SUBSCRIPTION '{subscription}' ON Local"
    )
    assert world.rows("SHOW SUBSCRIPTIONS OF Local") == [("Local", subscription, "station", ["LA"], "", True)]
    world.run(f"RESUME SUBSCRIPTION '{subscription}' ON Local; UNSUBSCRIBE '{subscription}' FROM Local")
    assert world.rows("SHOW SUBSCRIPTIONS") == []
    world.run("DROP CHANNEL Local; DROP DATASET Tweets; DROP TYPE Tweet; DROP BROKER station")
    assert dataset_names(parts.catalogue) == ["Officers", "Schools"]
    assert parts.catalogue.names() == ["Officers", "Schools"]


def test_another_process_sees_what_was_created(world: StatementsWorld) -> None:
    """Definitions, tables and registrations are durable."""
    later = StatementsWorld(world.folder)
    assert later.rows("SHOW CHANNELS") == [("Local", "continuous", 10.0, "normal", False, "ready", "")]
    assert later.rows("SHOW DATASETS") == [
        ("Officers", True, 1, "oid, location", ""),
        ("Schools", False, 1, "sid, area_code, name", ""),
        ("Tweets", True, 1, "tid, area_code, text, location, hateful_flag", ""),
    ]
    assert [row[:3] for row in later.rows("SHOW BROKERS")] == [("station", "https://93.184.216.34/results", "general")]


def test_a_drop_of_what_is_in_use_names_the_users(world: StatementsWorld) -> None:
    """Types, datasets, functions, channels of procedures, and brokers with subscriptions stay as long as they are used."""
    world.run(
        """
        CREATE FUNCTION count_of(a) AS SELECT count(*) AS n FROM Schools s WHERE s.area_code = a;
        CREATE REPETITIVE CHANNEL Counts USING count_of@1 PERIOD 1 MINUTE;
        CREATE PROCEDURE join_in(a) { SUBSCRIBE TO Local($a) ON station };
        """
    )
    refused(world, "DROP TYPE Tweet", "type 'Tweet' is in use: drop dataset Tweets first")
    refused(world, "DROP DATASET Tweets", "dataset 'Tweets' is in use: drop channel Local first")
    refused(world, "DROP FUNCTION count_of", "function 'count_of' is in use: drop channel Counts first")
    refused(world, "CREATE OR REPLACE FUNCTION count_of(a) AS SELECT 1 AS n", "is in use: drop channel Counts first")
    refused(world, "DROP CHANNEL Local", "channel 'Local' is in use: drop procedure join_in first")
    world.run("DROP PROCEDURE join_in")
    ((subscription,),) = world.rows("SUBSCRIBE TO Local('OC') ON station")
    refused(world, "DROP BROKER station", "broker 'station' is in use: channel Local has 1 subscriptions at it")
    world.run(f"UNSUBSCRIBE '{subscription}' FROM Local; DROP BROKER station")
    refused(world, "SUBSCRIBE TO Local('OC') ON station", "there is no broker 'station'")


def test_if_exists_if_not_exists_and_or_replace(world: StatementsWorld) -> None:
    """Each accepts what the plain statement refuses, and loses nothing."""
    assert world.texts("DROP FEED f IF EXISTS") == ["there is no feed f"]
    refused(world, "DROP CHANNEL other", "there is no channel 'other'; there are local")
    refused(world, "CREATE DATASET tweets(a int) PRIMARY KEY a", "dataset 'Tweets' exists")
    assert world.texts("CREATE DATASET Tweets(a int) IF NOT EXISTS PRIMARY KEY a") == ["dataset Tweets exists"]
    world.run("CREATE OR REPLACE BROKER station AT 'https://93.184.216.34/other'")
    assert world.rows("SHOW BROKERS")[0][1] == "https://93.184.216.34/other"
    again = (
        "CREATE OR REPLACE CONTINUOUS CHANNEL Local(a) PERIOD 1 MINUTE"
        " { SELECT t.tid FROM Tweets t WHERE is_new(t) AND t.tid = a }"
    )
    world.run(again)
    assert world.rows("SHOW CHANNELS") == [("Local", "continuous", 60.0, "normal", False, "ready", "")]
    world.run("SUBSCRIBE TO Local(1) ON station")
    refused(world, again, "channel 'Local' has subscriptions: drop it first")


def test_pause_resume_and_alter(world: StatementsWorld) -> None:
    """A paused channel has no runs; an altered period counts at once; a draining broker takes no subscriptions."""
    definitions = world.channels.parts.definitions
    world.run("PAUSE CHANNEL Local")
    assert definitions.channels() == []
    world.run("RESUME CHANNEL Local; ALTER CHANNEL Local SET PERIOD 90 SECONDS")
    assert [channel.period for channel in definitions.channels()] == ["90s"]
    world.run("ALTER CHANNEL Local SET PRIORITY LOW")
    assert [(channel.period, channel.priority) for channel in definitions.channels()] == [("90s", Priority.LOW)]
    world.run("PAUSE BROKER station")
    refused(world, "SUBSCRIBE TO Local('OC') ON station", "takes no new subscriptions")
    world.run("RESUME BROKER station; SUBSCRIBE TO Local('OC') ON station")


def test_a_text_with_a_fault_executes_nothing(world: StatementsWorld) -> None:
    """All statements are read before the first one is executed."""
    error = refused(world, "DROP CHANNEL Local;\nDROP CHANEL x", "unexpected 'CHANEL'")
    assert (error.line, error.column) == (2, 6)
    assert len(world.rows("SHOW CHANNELS")) == 1


def test_a_statement_that_cannot_be_executed_has_its_place_and_what_was_done(world: StatementsWorld) -> None:
    """The statements before it are done, and the message has their number."""
    error = refused(
        world, "PAUSE CHANNEL Local;\n  DROP CHANNEL x", "there is no channel 'x'.*1 statements before it are done"
    )
    assert (error.line, error.column) == (2, 3)
    assert world.rows("SHOW CHANNELS")[0][5] == "paused"


@pytest.mark.parametrize(
    ("body", "line", "column", "message"),
    [
        ("SELECT t.tid\n  FROM Twets t", 3, 8, "unknown"),
        ("SELECT t.tid FROM Tweets t\n WHERE is_new(t) AND near(t.location)", 3, 22, "near has 1 arguments"),
        ("SELECT s.name FROM Schools s WHERE is_new(s)", 2, 36, ""),
    ],
)
def test_refusals_of_a_query_have_their_places_in_the_whole_text(
    world: StatementsWorld, body: str, line: int, column: int, message: str
) -> None:
    """Line and column are those of the text that the user wrote, not of the query inside."""
    error = refused(world, f"CREATE CONTINUOUS CHANNEL c() PERIOD 1 HOUR {{\n{body} }}", message)
    assert (error.line, error.column) == (line, column), error
    assert len(world.rows("SHOW CHANNELS")) == 1


def test_a_creation_that_fails_leaves_nothing(world: StatementsWorld) -> None:
    """The definition is taken back, so the name is free."""
    world.channels.parts.catalogue.create(
        "Taken_results", Dataset.open(world.channels.parts.catalogue, "Tweets").schema
    )
    text = "CREATE CONTINUOUS CHANNEL Taken() PERIOD 1 HOUR { SELECT t.tid FROM Tweets t WHERE is_new(t) }"
    refused(world, text, "Taken_results")
    assert world.channels.parts.definitions.find(Kind.CHANNEL, "Taken") is None


def test_names_of_dead_letters_belong_to_feeds(world: StatementsWorld) -> None:
    """A dataset of such a name would stop the feed at its first rejected record."""
    world.run('CREATE FEED f WITH {"type": "http"}')
    refused(world, "CREATE DATASET F_Dead_Letters(Tweet) PRIMARY KEY tid", "belong to feeds")


def test_the_rest_of_a_killed_process_can_be_dropped(world: StatementsWorld) -> None:
    """A definition without its tables, or with one of them, is dropped like any other."""
    definitions = world.channels.parts.definitions
    text = "CREATE CONTINUOUS CHANNEL half() PERIOD 1 HOUR { SELECT 1 }"
    definitions.create(Definition(kind=Kind.CHANNEL, name="half", text=text, state=State.CREATING))
    assert [channel.name for channel in definitions.channels()] == ["Local"]
    world.run("DROP CHANNEL half")
    world.channels.parts.catalogue.drop("Local_results")
    world.run("DROP CHANNEL Local")
    assert "Local_subscriptions" not in world.channels.parts.catalogue.names()


def test_a_query_without_end_is_interrupted_and_the_next_one_runs(tmp_path: Path) -> None:
    """Analysts take turns: such a query would keep the others waiting."""
    world = StatementsWorld(tmp_path, query_limit_s=0.3)
    world.police()
    records = [{"tid": number, "area_code": "OC", "text": "a"} for number in range(300)]
    Dataset.open(world.channels.parts.catalogue, "Tweets").insert(records)
    refused(
        world,
        "SELECT count(*) AS n FROM Tweets a, Tweets b, Tweets c, Tweets d, Tweets e WHERE a.tid < e.tid",
        "longer than 0.3 s",
    )
    assert world.rows("SELECT count(*) AS n FROM Tweets t") == [(300,)]


def test_select_sees_ordinary_data(world: StatementsWorld) -> None:
    """`SELECT *` and DESCRIBE leave hidden columns out; in a query every record is new."""
    tweets(world, {"tid": 1, "area_code": "OC", "text": "a", "location": [1, 2], "hateful_flag": True})
    (answer,) = world.run("SELECT * FROM Tweets")
    assert answer.columns == ("tid", "area_code", "text", "location", "hateful_flag")
    assert answer.rows == ((1, "OC", "a", {"x": 1.0, "y": 2.0}, True),)
    assert world.rows("SELECT t.tid FROM Tweets t WHERE is_new(t)") == [(1,)]
    assert world.rows("DESCRIBE DATASET Officers") == [("oid", "bigint", True), ("location", "point", False)]
    refused(world, "SELECT t.ts FROM Tweets t", "ts")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM Local_results",
        "COPY Tweets TO '/tmp/x'",
        "FROM Tweets; ATTACH '/tmp/x'",
        "WITH x AS (SELECT * FROM read_blob('/etc/passwd')) SELECT * FROM x",
        "SELECT (SELECT content FROM read_text('/etc/passwd')) AS x FROM Tweets",
        "PRAGMA database_list",
        "INSTALL httpfs",
    ],
)
def test_queries_read_datasets_only(world: StatementsWorld, text: str) -> None:
    """No file, setting or other table of the process is within reach of a query."""
    tweets(world, {"tid": 1})
    refused(world, text, "")


INJECTIONS = (
    "OC'; DROP CHANNEL Local; --",
    "' OR 1=1 --",
    "'' OR ''='",
    "\\' OR 1=1 --",
    '" OR ""="',
    "$area",
    "') UNION SELECT 1, 'x",
    "${x}",
    "%27 OR 1=1",
    "x/* */",
    "\n;DROP DATASET Tweets",
    "O\u02bcC",
)


@pytest.mark.parametrize("text", INJECTIONS)
def test_values_are_never_read_as_text(world: StatementsWorld, text: str) -> None:
    """A hostile value is stored and compared as it is: in a subscription, in a query, and through a procedure."""
    tweets(world, {"tid": 1, "area_code": "OC", "text": "a"}, {"tid": 2, "area_code": text, "text": "b"})
    assert world.rows("SELECT t.tid FROM Tweets t WHERE t.area_code = $area", area=text) == [(2,)]
    world.run("SUBSCRIBE TO Local($area) ON station", area=text)
    world.run("CREATE PROCEDURE p(a) { SUBSCRIBE TO Local($a) ON station }; EXECUTE p($area)", area=text)
    world.run("SUBSCRIBE TO Local('" + text.replace("'", "''") + "') ON station")
    assert [row[3] for row in world.rows("SHOW SUBSCRIPTIONS")] == [[text]] * 3
    assert len(world.rows("SHOW CHANNELS")) == 1
    parts = world.channels.parts
    compiled = parts.compiled(parts.definitions.get(Kind.CHANNEL, "Local"))
    outcome = Runner(parts.catalogue, DuckDbExecutor(threads=1)).run(compiled, 1)
    assert outcome.rows == 1, "one group of three subscriptions"


values = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
    st.lists(st.integers(0, 9), max_size=3, min_size=1),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=values)
def test_a_bound_value_comes_back_as_it_is(world: StatementsWorld, value: Any) -> None:
    """A query that selects its value returns it, whatever characters it has."""
    if not world.rows("SELECT t.tid FROM Tweets t"):
        tweets(world, {"tid": 1})
    ((found,),) = world.rows("SELECT $v AS v FROM Tweets t", v=value)
    assert found == value
    assert type(found) is type(value)


def test_points_and_missing_values(world: StatementsWorld) -> None:
    """A point is bound as a struct; a name without a value, or a value of no type, is refused."""
    tweets(world, {"tid": 1, "location": [0, 3]}, {"tid": 2, "location": [9, 9]})
    near = "SELECT t.tid FROM Tweets t WHERE near(t.location, $here, 5)"
    assert world.rows(near, here=Point(0, 0)) == [(1,)]
    assert world.rows(near, here={"x": 0, "y": 0}) == [(1,)]
    refused(world, near, "the name \\$here has no value; expected a value for 'here'")
    refused(world, "SUBSCRIBE TO Local($a) ON station", "the name \\$a has no value")
    refused(world, near, "a value is object", here=object())
    refused(world, near, "a value is float", here=float("nan"))


def test_users_change_only_their_own(world: StatementsWorld) -> None:
    """A user neither drops nor sees what belongs to others; the operator may do everything."""
    world.run("CREATE DATASET mine(a int) PRIMARY KEY a", user="ann")
    refused(world, "DROP DATASET mine", "dataset 'mine' belongs to another user", user="ben")
    refused(world, "DROP CHANNEL Local", "belongs to another user", user="ben")
    refused(
        world, "CREATE OR REPLACE BROKER station AT 'https://93.184.216.34/'", "belongs to another user", user="ben"
    )
    (answer,) = world.run("SUBSCRIBE TO Local('OC') ON station", user="ann")
    ((subscription,),) = answer.rows
    refused(world, f"UNSUBSCRIBE '{subscription}' FROM Local", "has no subscription", user="ben")
    (answer,) = world.run("SHOW SUBSCRIPTIONS", user="ben")
    assert answer.rows == ()
    world.run(f"UNSUBSCRIBE '{subscription}' FROM Local; DROP DATASET mine")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM Local_subscriptions",
        "EXPLAIN SELECT * FROM local_SUBSCRIPTIONS",
        "CREATE FUNCTION f() AS SELECT s.subscription FROM Tweets t, Local_subscriptions s",
        "CREATE CONTINUOUS CHANNEL c() PERIOD 1 HOUR { SELECT s.subscription FROM Local_subscriptions s WHERE is_new(s) }",
        "WITH x AS (SELECT * FROM Local_subscriptions) SELECT * FROM x",
    ],
)
def test_a_user_does_not_read_the_subscriptions_of_others(world: StatementsWorld, text: str) -> None:
    """Neither a query nor a channel of a user reads them; the operator may."""
    refused(world, text, "holds the subscriptions of all users", user="ann")
    world.run("SUBSCRIBE TO Local('OC') ON station")
    assert len(world.rows("SELECT * FROM Local_subscriptions")) == 1


def test_subscriptions_of_a_user_have_a_quota(world: StatementsWorld) -> None:
    """A user with the most subscriptions that are allowed gets no further one, and others do."""
    parts = world.channels.parts
    parameters = parts.compiled(parts.definitions.get(Kind.CHANNEL, "Local")).parameters
    Subscriptions(parts.catalogue, "Local", parameters).add_all([("station", ["OC"])] * 10_000, user="ann")
    refused(
        world, "SUBSCRIBE TO Local('LA') ON station", "'ann' has 10000 subscriptions on channel 'Local'", user="ann"
    )
    world.run("SUBSCRIBE TO Local('LA') ON station", user="ben")


def test_parameters_must_fit(world: StatementsWorld) -> None:
    """Number and types of the values are those of the channel; a function has the number that its channel names."""
    refused(world, "SUBSCRIBE TO Local() ON station", "has 1 parameters \\(area\\), not 0")
    refused(world, "SUBSCRIBE TO Local([1]) ON station", "parameters do not fit")
    refused(
        world,
        "CREATE REPETITIVE CHANNEL c USING f@1 PERIOD 1 HOUR",
        "function 'f', which does not exist|no function 'f'",
    )
    world.run("CREATE FUNCTION f(a, b) AS SELECT s.sid FROM Schools s WHERE s.area_code = a AND s.name = b")
    refused(world, "CREATE REPETITIVE CHANNEL c USING f@1 PERIOD 1 HOUR", "function 'f' has 2 parameters, not 1")


def test_procedures_do_not_run_for_ever(world: StatementsWorld) -> None:
    """A procedure that executes itself is refused."""
    world.run("CREATE PROCEDURE a() { SELECT 1 AS one FROM Tweets }")
    world.run("CREATE OR REPLACE PROCEDURE b() { EXECUTE a() }; DROP PROCEDURE b; DROP PROCEDURE a")
    refused(world, "CREATE PROCEDURE p() { EXECUTE p() }", "uses procedure 'p', which does not exist")


def test_python_functions_are_those_that_are_allowed(world: StatementsWorld) -> None:
    """A statement cannot name a function of any module."""
    refused(
        world,
        "CREATE FUNCTION f(a) AS PYTHON 'os:system'",
        "functions of module 'os' are not allowed; allowed are none",
    )


def test_secrets_of_options_are_not_shown(world: StatementsWorld) -> None:
    """The key of a broker is in its registration only."""
    key = "whsec_" + "A" * 44
    world.run(f"""CREATE BROKER b AT 'https://93.184.216.34/' WITH {{"key": "{key}"}}""")
    answers = world.run("SHOW BROKERS; DESCRIBE BROKER b")
    assert key not in str(answers)
    assert key not in str(world.channels.parts.definitions.all())


def test_explain_says_why(world: StatementsWorld) -> None:
    """EXPLAIN of a channel, of a statement that would create it, and of a query, with its time by ANALYZE."""
    plan = [text for (text,) in world.rows("EXPLAIN CHANNEL Local")]
    assert any("hash join, because the body compares a parameter by =" in text for text in plan)
    body = "{ SELECT t.tid FROM Tweets t WHERE is_new(t) AND t.area_code = a }"
    assert world.rows(f"EXPLAIN CREATE CONTINUOUS CHANNEL c(a) PERIOD 1 HOUR {body}")
    assert world.rows("EXPLAIN SELECT s.sid FROM Schools s")
    assert world.rows("EXPLAIN ANALYZE SELECT s.sid FROM Schools s")[-1][0].startswith("0 rows in ")
    refused(world, "EXPLAIN ANALYZE CHANNEL Local", "ANALYZE executes a query")


def test_sharing_names_channels_and_what_they_share(world: StatementsWorld) -> None:
    """Relations are read once, joins are executed once, and a channel of another period shares nothing."""
    for name, period in (("first", 10), ("second", 10), ("slow", 60)):
        world.rows(
            f"CREATE CONTINUOUS CHANNEL {name}(a) PERIOD {period} SECONDS {{ SELECT t.tid, s.sid FROM Tweets t, Schools s "
            "WHERE is_new(t) AND t.area_code = s.area_code AND s.area_code = a }"
        )
    assert [row[0] for row in world.rows("SHOW SHARING")] == [
        "state of Schools (sid, area_code) every 10 s: read once for first, second",
        "new records of Tweets (tid, area_code) every 10 s: read once for first, second",
        "join of Schools, Tweets every 10 s: executed once for first, second",
    ]


@pytest.mark.parametrize("method", ["add", "change", "move"])
def test_no_subscription_comes_to_a_broker_that_is_dropped_meanwhile(
    world: StatementsWorld, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """The broker is dropped between the look at it and the write: the statement fails and changes nothing."""
    world.run('CREATE BROKER other AT "https://93.184.216.34/other"')
    ((subscription,),) = world.rows("SUBSCRIBE TO Local('OC') ON station")
    write = getattr(Subscriptions, method)

    def late(subscriptions: Subscriptions, *arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(Subscriptions, method, write)
        world.run("DROP BROKER other")
        return write(subscriptions, *arguments, **options)

    monkeypatch.setattr(Subscriptions, method, late)
    statement = {
        "add": "SUBSCRIBE TO Local('OC') ON OTHER",
        "change": f"CHANGE SUBSCRIPTION '{subscription}' ON Local ('LA') TO other",
        "move": "CHANGE SUBSCRIPTIONS ON station TO other",
    }[method]
    refused(world, statement, "broker 'other' was dropped")
    assert world.rows("SHOW SUBSCRIPTIONS OF Local") == [("Local", subscription, "station", ["OC"], "", False)]


def test_describe(world: StatementsWorld) -> None:
    """A description has text, state, uses and users."""
    described = dict(world.rows("DESCRIBE Local"))
    assert described["kind"] == "channel"
    assert described["uses"] == ["dataset:tweets"]
    assert described["parameters"] == ["area text"]
    assert dict(world.rows("DESCRIBE TYPE tweet"))["used by"] == ["dataset:tweets"]
    refused(world, "DESCRIBE nothing", "there is no thing 'nothing'")
    assert world.rows("SHOW SHARING") == []
    assert [row[0] for row in world.rows("SHOW TYPES")] == ["Tweet"]
    assert world.rows("SHOW FEEDS") == []
