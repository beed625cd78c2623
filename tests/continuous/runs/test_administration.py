"""Administration of installed queries, and its commands."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from quaestor.cli.main import main
from quaestor.continuous.administration import Administration, instant
from quaestor.continuous.delivery import sink
from quaestor.continuous.delivery.batch import ResultBatch
from quaestor.continuous.delivery.dead_letters import DeadLetter, DeadLetters
from quaestor.continuous.functions import DeclaredQueries
from quaestor.continuous.hosting import administration_of, hosted
from quaestor.continuous.installed import InstalledQuery
from quaestor.errors import ConfigurationError, QueryError
from quaestor.observability.telemetry import Telemetry
from quaestor.settings.continuous import ContinuousSettings
from tests.continuous.runs.plain_engine import REMINDERS, PlainEngine
from tests.continuous.runs.world import NOON, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    created = World(tmp_path)
    created.reminders()
    return created


@pytest.fixture
def administration(world: World, tmp_path: Path) -> Administration:
    settings = ContinuousSettings(continuous_folder=str(tmp_path))
    return Administration(settings, world.catalogue, PlainEngine(world.catalogue), clock=world.clock)  # type: ignore[arg-type]


def command(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> list[str]:
    """Run a command; return the lines of its output, or of its error."""
    with pytest.raises(SystemExit) as ended:
        main(["continuous", *arguments])
    output = capsys.readouterr()
    assert ended.value.code == status, output.err
    return (output.out if status == 0 else output.err).splitlines()


def query(**fields: Any) -> InstalledQuery:
    return InstalledQuery(**{"name": "due", "text": REMINDERS, "every": "1m", **fields})


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("beginning", 0),
        ("now", int(NOON.timestamp()) * 10**6),
        ("2026-11-28T13:00:00+01:00", int(NOON.timestamp()) * 10**6),
    ],
)
def test_a_query_begins_where_its_user_wants(administration: Administration, start: str, expected: int) -> None:
    administration.install(query(), start)
    assert administration.installed.get("due").start == expected


def test_nothing_is_installed_that_cannot_run_or_be_delivered(administration: Administration) -> None:
    """A refused text, a sink without its setting, an instant that is none."""
    with pytest.raises(QueryError, match="BAD"):
        administration.install(query(text="BAD"), "now")
    with pytest.raises(ConfigurationError, match="webhook_key"):
        administration.install(query(sinks=("https://a/",)), "now")
    with pytest.raises(ConfigurationError, match="no instant"):
        administration.install(query(), "yesterday")
    assert administration.all() == []
    administration.install(query(), "now")
    for address, sentence in (("htps://oops", "no address of a sink"), ("https://a/", "webhook_key")):
        with pytest.raises(ConfigurationError, match=sentence):
            administration.change("due", sinks=[address])
    assert administration.change("due", sinks=["function:due"])["sinks"] == ("function:due",)
    with pytest.raises(QueryError, match="BAD"):
        administration.change_text("due", "BAD", "now")
    assert administration.change_text("due", f"{REMINDERS} ", "beginning")["start"] == "1970-01-01T00:00:00.000000Z"


def test_results_come_in_pages_of_whole_runs(world: World, administration: Administration) -> None:
    """Each row once, in order, until the page that is complete."""
    administration.install(query(), "beginning")
    for minute in range(1, 4):
        world.add(
            "reminders",
            *({"id": minute * 10 + n, "note": "x", "due_at": NOON + timedelta(minutes=minute)} for n in range(3)),
        )
    for _ in range(3):
        world.advance(minutes=1)
        world.run()
    pages = [administration.results("due", limit=4)]
    while not pages[-1]["complete"]:
        pages.append(administration.results("due", after=pages[-1]["next"], limit=4))
    assert [[row["row"]["id"] for row in page["rows"]] for page in pages] == [[10, 11, 12, 20, 21, 22], [30, 31, 32]]
    assert administration.results("due", after=pages[-1]["next"])["rows"] == []
    assert pages[0]["rows"][0]["key"] == f"due/{pages[0]['rows'][0]['run']}/0"


def test_the_commands_show_and_change_a_query(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QUAESTOR_CONTINUOUS_FOLDER", str(tmp_path))
    monkeypatch.setenv("QUAESTOR_DELIVERY_FOLDER", str(tmp_path))
    world.install()
    world.add("reminders", {"id": 1, "note": "x", "due_at": NOON + timedelta(seconds=1)})
    world.advance(minutes=1)
    world.run()
    assert command(capsys, "list") == ["due  active  every 1m  "]
    shown = json.loads(command(capsys, "show", "due")[0])
    assert (shown["results"], shown["progress"], shown["confirmed"]) == (1, "2026-11-28T12:01:00.000000Z", {})
    row, end = map(json.loads, command(capsys, "results", "due"))
    assert row["row"] == {"id": 1, "note": "x"}
    assert end["complete"] is True
    assert command(capsys, "results", "due", "--after", str(end["next"])) == [json.dumps(end, separators=(",", ":"))]
    assert json.loads(command(capsys, "pause", "due")[0])["state"] == "paused"
    assert json.loads(command(capsys, "resume", "due")[0])["state"] == "active"
    changed = json.loads(command(capsys, "change", "due", "--every", "1d", "--to", "file:a", "--at-most", "2d")[0])
    assert (changed["every"], changed["sinks"], changed["at_most"]) == ("1d", ["file:a"], "2d")
    url = "https://hooks.example/s3cret"
    letters = DeadLetters(world.catalogue.root)
    for run in (1, 2):
        batch = ResultBatch(query="due", run=run, instant=run, rows=[{"id": 1}])
        letters.put(DeadLetter(batch=batch, sink=url, reason="status", error="answered 404", attempts=1))
    assert letters.counts() == {"due": 2}
    assert len(command(capsys, "dead-letters", "--query", "due", "--drop")) == 2
    assert letters.count() == 0
    letters.put(DeadLetter(batch=batch, sink=url, reason="status", error="answered 404", attempts=1))
    assert command(capsys, "dead-letters") == [f"due/2/0  1 rows  {sink.shown(url)}  status: answered 404"]
    assert command(capsys, "drop", "due") == []
    assert letters.count() == 0
    assert command(capsys, "show", "due", status=2) == ["quaestor: no query 'due' is installed: there are none"]


SQL = "SELECT id, note FROM reminders WHERE due_at = now()"


def test_a_query_is_installed_tried_and_run_by_commands(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the real compiler and engine. A dry run shows each row with its instant."""
    monkeypatch.setenv("QUAESTOR_CONTINUOUS_FOLDER", str(tmp_path))
    monkeypatch.setenv("QUAESTOR_DELIVERY_FOLDER", str(tmp_path))
    world.add("reminders", {"id": 1, "note": "x", "due_at": NOON + timedelta(hours=1)})
    world.advance(hours=2)
    world.add("reminders", {"id": 2, "note": "y", "due_at": NOON + timedelta(hours=3)})
    dry = [json.loads(row) for row in command(capsys, "dry-run", SQL, "--upto", "2026-11-28T13:30:00Z")]
    assert dry == [{"instant": "2026-11-28T13:00:00.000000Z", "row": {"id": 1, "note": "x"}}]
    installed = json.loads(
        command(capsys, "install", "due", SQL, "--every", "1h", "--from", "beginning", "--to", "file:due.ndjson")[0]
    )
    assert (installed["text"], installed["state"], installed["sinks"]) == (SQL, "active", ["file:due.ndjson"])
    (refusal,) = command(capsys, "install", "bad", "SELECT id FROM orders", "--every", "1h", status=2)
    assert "orders" in refusal
    changed = json.loads(command(capsys, "set-text", "due", f"{SQL} AND id > 1", "--from", "beginning")[0])
    assert changed["tables"] == ["results.due", "results_2.due"]


@pytest.mark.anyio
async def test_a_hosted_folder_is_run_by_one_process(world: World, tmp_path: Path) -> None:
    """The second one waits for the lock, and takes over."""
    settings = ContinuousSettings(continuous_folder=str(tmp_path))
    keys: list[str] = []
    declared, received = DeclaredQueries(), asyncio.Event()

    async def note(batch: ResultBatch) -> None:
        keys.extend(key for key, _ in batch.keyed_rows())
        received.set()

    async def write() -> None:
        for number in range(10_000):
            world.advance(seconds=1)
            await asyncio.to_thread(world.add, "reminders", {"id": number, "note": f"note {number}"})

    def host() -> asyncio.Task[None]:
        administration = administration_of(settings, clock=world.clock)
        return asyncio.create_task(hosted(administration, Telemetry(), clock=world.clock, declared=declared))

    declared.add("SELECT note FROM reminders", every="1s", name="note", at_most="", function=note)
    writer, first, second = asyncio.create_task(write()), host(), None
    try:
        async with asyncio.timeout(100):
            await received.wait()
            second = host()
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            received.clear()
            await received.wait()
    finally:
        tasks = [task for task in (writer, first, second) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert set(keys) <= {f"note/{row['_run']}/{row['_row']}" for row in world.results("note")}


def test_a_command_without_a_folder_names_the_setting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("QUAESTOR_CONTINUOUS_FOLDER", raising=False)
    (sentence,) = command(capsys, "list", status=2)
    assert "QUAESTOR_CONTINUOUS_FOLDER" in sentence


@pytest.mark.parametrize(
    ("text", "expected"), [("1970-01-01T00:00:01Z", 10**6), ("1970-01-01", 0), ("1970-01-01T00:00:00.000001", 1)]
)
def test_an_instant_without_an_offset_is_utc(text: str, expected: int) -> None:
    assert instant(text) == expected


def test_results_can_be_followed(world: World, tmp_path: Path) -> None:
    """`results --follow` prints the rows there are, and then each new row, once."""
    world.install()
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell in the background ignores it
    program = f"{heard}; from quaestor.cli.main import main; main()"
    arguments = program, "continuous", "results", "due", "--follow", "--folder"
    with subprocess.Popen(
        [sys.executable, "-c", *arguments, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as followed:
        assert followed.stdout is not None
        try:
            for number in (1, 2, 3):
                world.add("reminders", {"id": number, "note": "x", "due_at": world.now + timedelta(seconds=1)})
                world.advance(minutes=1)
                world.run()
                assert json.loads(followed.stdout.readline())["row"]["id"] == number
        finally:
            followed.send_signal(signal.SIGINT)
        assert followed.wait(60) == 0
        assert followed.stdout.read() == ""
