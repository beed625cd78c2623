"""Commands, prompt and admin API of statements."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from quaestor import AdminApi, AdminToken, Quaestor
from quaestor.channels.brokers.delivery import letters_of
from quaestor.channels.datasets import Dataset
from quaestor.channels.runs.run import Runner
from quaestor.channels.statements.model import Kind
from quaestor.cli.main import main
from quaestor.cli.sql_prompt import CatalogueCompleter, Prompt, is_complete
from quaestor.continuous.delivery.batch import ResultBatch
from quaestor.continuous.delivery.dead_letters import DeadLetter
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from tests.channels.statements_world import POLICE, StatementsWorld

TOKEN = "a-token-of-twenty-four-characters"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StatementsWorld:
    monkeypatch.setenv("QUAESTOR_CONTINUOUS_FOLDER", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    created = StatementsWorld(tmp_path)
    created.police()
    return created


def command(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> list[str]:
    """Run a command; return the lines of its output, or of its error if there is no output."""
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    output = capsys.readouterr()
    assert ended.value.code == status, output.err
    return (output.out or output.err).splitlines()


def test_the_life_of_a_channel_by_commands(world: StatementsWorld, capsys: pytest.CaptureFixture[str]) -> None:
    """Listed, shown, subscribed, paused, resumed, unsubscribed and dropped; a missing name is an error with exit status 2."""
    (channel,) = command(capsys, "channels", "list")
    assert json.loads(channel)["name"] == "Local"
    subscribed = json.loads(command(capsys, "channels", "subscribe", "Local", '"OC"', "--on", "station")[0])
    (listed,) = command(capsys, "channels", "list", "subscriptions", "--channel", "Local")
    assert (json.loads(listed)["id"], json.loads(listed)["parameters"]) == (subscribed["id"], ["OC"])
    assert command(capsys, "channels", "pause", "Local") == ["paused channel Local"]
    assert '"paused"' in "".join(command(capsys, "channels", "show", "Local"))
    assert command(capsys, "channels", "resume", "Local") == ["resumed channel Local"]
    command(capsys, "channels", "unsubscribe", "Local", subscribed["id"])
    assert command(capsys, "channels", "drop", "Local") == ["dropped channel Local"]
    assert command(capsys, "channels", "list") == []
    (error,) = command(capsys, "channels", "drop", "Local", status=2)
    assert error == "quaestor: line 1, column 1: there is no channel 'Local'; there are none"
    (error,) = command(capsys, "channels", "list", "tables", status=2)
    assert error.startswith("quaestor: there is no list of 'tables'; there are brokers, channels")
    (error,) = command(capsys, "channels", "subscribe", "Local", "OC", "--on", "station", status=2)
    assert error.startswith("quaestor: 'OC' is not JSON")


def test_results_and_changes_of_subscriptions_by_commands(
    world: StatementsWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed subscription has other results from its next run on; results are of a subscription, a broker, or all."""
    parts = world.channels.parts
    runner = Runner(parts.catalogue, DuckDbExecutor(threads=1))
    tweets = Dataset.open(parts.catalogue, "Tweets")
    mine = json.loads(command(capsys, "channels", "subscribe", "Local", '"OC"', "--on", "station")[0])["id"]
    for tid in (1, 2):
        tweets.insert([{"tid": tid, "text": area, "area_code": area} for area in ("OC",)])
        tweets.insert([{"tid": -tid, "text": "LA", "area_code": "LA"}])
        runner.run(parts.compiled(parts.definitions.get(Kind.CHANNEL, "Local")), tid * 1_000_000)
        if tid == 1:
            command(capsys, "channels", "change", "Local", mine, '"LA"')
    rows = [json.loads(row) for row in command(capsys, "channels", "results", "Local", "--subscription", mine)]
    assert [(row["subscriptionIds"], row["result"]["tid"]) for row in rows] == [([mine], 1), ([mine], -2)]
    assert [json.loads(row) for row in command(capsys, "channels", "results", "Local")] == rows
    later = command(capsys, "channels", "results", "Local", "--broker", "station", "--after", str(rows[0]["run"]))
    assert [json.loads(row)["result"]["tid"] for row in later] == [-2]
    (error,) = command(capsys, "channels", "change", "Local", mine, status=2)
    assert error.startswith("quaestor: nothing to change")


def test_subscriptions_and_dead_letters_of_brokers_by_commands(
    world: StatementsWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    """Subscriptions move and are balanced; dead letters are sent again, or dropped."""
    world.run("CREATE BROKER second AT 'https://93.184.216.34/second'; SUBSCRIBE TO Local('OC') ON station")
    moved = "moved 1 subscriptions from station to second, from the next run on"
    assert command(capsys, "channels", "move", "--from", "station", "--to", "second") == [moved]
    assert [row[2] for row in world.rows("SHOW SUBSCRIPTIONS")] == ["second"]
    *loads, text = command(capsys, "channels", "balance", "Local", "--among", "station", "--among", "second")
    assert [json.loads(load)["broker"] for load in loads] == ["station", "second"]
    assert text == "moved 0 subscriptions in 0 groups, from the next run on"
    letters = letters_of(world.channels.parts.catalogue.root)
    batch = ResultBatch(query="Local", run=1, instant=1, rows=[{"subscriptions": [], "record": "null"}])
    letters.put(DeadLetter(batch=batch, sink="broker:dropped/pull", reason="status", error="", attempts=1))
    assert command(capsys, "channels", "replay", "local", status=1) == ['{"delivered": 0, "failed": 1}']
    assert command(capsys, "channels", "discard", "local") == ['{"dropped": 1}']
    assert letters.count() == 0


def test_statements_by_a_command_bind_values(world: StatementsWorld, capsys: pytest.CaptureFixture[str]) -> None:
    """A hostile value of an option stays a value."""
    hostile = "'); DROP CHANNEL Local; --"
    text = "SUBSCRIBE TO Local($area) ON station; SHOW SUBSCRIPTIONS"
    value = f"area={json.dumps(hostile)}"
    rows = [json.loads(row) for row in command(capsys, "channels", "execute", text, "--value", value, "--user", "ann")]
    assert rows[1]["parameters"] == [hostile]
    assert len(world.rows("SHOW CHANNELS")) == 1
    (error,) = command(capsys, "channels", "execute", "DROP CHANEL x", status=2)
    assert "line 1, column 6: unexpected 'CHANEL'" in error


def test_sql_prints_tables_and_errors_with_a_caret(world: StatementsWorld, capsys: pytest.CaptureFixture[str]) -> None:
    """Cells that could control a terminal are escaped; an error ends the command with status 1."""
    Dataset.open(world.channels.parts.catalogue, "Tweets").insert(
        [{"tid": 1, "text": "a\x1b[2Jb", "location": [1, 2]}, {"tid": 2, "text": "x" * 100}]
    )
    rows = command(capsys, "sql", "-c", "SELECT t.tid, t.text, t.location FROM Tweets t ORDER BY t.tid")
    escaped = r"a\x1b[2Jb".ljust(60)
    assert rows == [
        f"tid | text{' ' * 56} | location",
        f"----+-{'-' * 60}-+-{'-' * 17}",
        f"1   | {escaped} | " + '{"x":1.0,"y":2.0}',
        f"2   | {'x' * 59}… | NULL",
        "(2 rows)",
    ]
    error = command(capsys, "sql", "-c", "SHOW CHANNELS;\n  DROP CHANEL Local", status=1)
    assert error[:2] == ["  DROP CHANEL Local", "       ^"]
    assert error[2].startswith("line 2, column 8: unexpected 'CHANEL'")


def test_sql_shows_sentences_whole(world: StatementsWorld, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan's sentences, and the text of a channel, are in the last column: nothing of them is cut."""
    lines = command(capsys, "sql", "-c", "EXPLAIN CHANNEL Local; DESCRIBE CHANNEL Local")
    assert lines[:2] == ["plan", "-" * 60]
    assert "Tweets: only files of (previous, current] (0 records), because every result needs is_new" in lines
    assert not any(text.endswith("…") for text in lines)
    assert any(text.startswith("text ") and text.endswith("}") for text in lines)


def test_sql_executes_a_piped_text(
    world: StatementsWorld, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole text is read before anything is executed; an error ends the command with status 1."""
    monkeypatch.setattr("sys.stdin", io.StringIO("ALTER CHANNEL Local SET PRIORITY LOW;\nPAUSE CHANNEL Local;\n"))
    assert command(capsys, "sql") == ["altered channel Local", "paused channel Local"]
    monkeypatch.setattr("sys.stdin", io.StringIO("RESUME CHANNEL Local;\nPAUSE CHANEL Local;\n"))
    assert command(capsys, "sql", status=1)[0] == "PAUSE CHANEL Local;"
    assert world.rows("SHOW CHANNELS")[0][5] == "paused"


def test_the_prompt_reads_several_lines_and_goes_on_after_an_error(
    world: StatementsWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    """Enter ends a text that has its semicolon, and begins a line otherwise; Ctrl-C drops a text, Ctrl-D ends."""
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text("SHOW CHANEL;\r")
        pipe.send_text("DROP CHANNEL Local\x03")
        pipe.send_text("SELECT ';' AS a\rFROM Officers o;\r")
        pipe.send_text("PAUSE CHANNEL\r Local;\r\x04")
        Prompt(world.channels).run()
    output = capsys.readouterr()
    assert output.out.splitlines() == ["a", "-", "(0 rows)", "paused channel Local"]
    assert "     ^" in output.err
    assert "PAUSE CHANNEL" in (world.folder / ".quaestor_sql_history").read_text()


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("SHOW CHANNELS", False),
        ("SHOW CHANNELS;", True),
        ("SHOW CHANELS;", True),
        ("SELECT ';", False),
        ("SELECT 1 /* ;", False),
        ("CREATE CONTINUOUS CHANNEL c() PERIOD 1 HOUR { SELECT 1;", False),
    ],
)
def test_a_text_is_complete_when_its_last_statement_ends(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT * FROM twe", ["Tweet", "Tweets"]),
        ("SELECT t.haTe", ["hateful_flag"]),
        ("SUBSCRIBE TO Loc", ["Local", "location"]),
        ("WHERE is_", ["is_new"]),
        ("CREATE CONT", ["CONTINUOUS"]),
        ("DROP BROKER stat", ["station"]),
        ("SELECT ", []),
    ],
)
def test_completion_is_from_the_catalogue(world: StatementsWorld, text: str, words: list[str]) -> None:
    """Names of datasets, columns, channels and brokers, functions and keywords."""
    completer = CatalogueCompleter(world.channels)
    found = {entry.text for entry in completer.get_completions(Document(text), CompleteEvent())}
    assert found == set(words)


@pytest.mark.anyio
async def test_statements_over_the_admin_api(tmp_path: Path) -> None:
    """Created, subscribed with bound values, listed; each fault is an answer with its place."""
    api = AdminApi(quaestor=Quaestor(grid=False, continuous_folder=str(tmp_path)), token=AdminToken(TOKEN))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(api),
        base_url="http://a/quaestor/admin",
        headers={"authorization": f"Bearer {TOKEN}"},
    ) as client:

        async def execute(status: int = 200, **body: Any) -> Any:
            answer = await client.post("/statements", json=body)
            assert answer.status_code == status, answer.text
            return answer.json()

        created = await execute(text=POLICE)
        assert created["answers"][-1] == {"text": "created channel Local"}
        hostile = "'); DROP CHANNEL Local; --"
        subscribed = await execute(text="SUBSCRIBE TO Local($area) ON station", user="ann", values={"area": hostile})
        ((identity,),) = subscribed["answers"][0]["rows"]
        listed = (await client.get("/statements", params={"kind": "subscriptions", "user": "ann"})).json()
        assert listed["subscriptions"] == [
            {
                "channel": "Local",
                "id": identity,
                "broker": "station",
                "parameters": [hostile],
                "user": "ann",
                "paused": False,
            }
        ]
        others = (await client.get("/statements", params={"kind": "subscriptions", "user": "ben"})).json()
        assert others == {"subscriptions": []}
        assert [channel["name"] for channel in (await client.get("/statements?kind=channels")).json()["channels"]] == [
            "Local"
        ]
        assert (await client.get("/statements?kind=secrets")).status_code == 400
        refusals = {
            "line 2, column 6: unexpected 'CHANEL'": {"text": "SHOW CHANNELS;\nDROP CHANEL x"},
            "belongs to another user": {"text": "DROP CHANNEL Local", "user": "ann"},
            "has no value": {"text": "SUBSCRIBE TO Local($area) ON station"},
            "cannot name a value": {"text": "SHOW CHANNELS", "values": {"a b": 1}},
            "the body is an object": {"text": 1},
            "unknown: statement": {"text": "", "statement": ""},
            "values is an object": {"text": "", "values": []},
        }
        for message, body in refusals.items():
            assert message in (await execute(400, **body))["detail"]
