"""The command line: what was foreseen ends in one sentence and status 2, never in a traceback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from quaestor.cli import audit_command, main
from quaestor.middleware.audit import Examined
from quaestor.read_path.verification import Finding
from quaestor.testing import servers

BOARD = '{"origin": "JFK", "status": {"$ne": "departed"}}'


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main.main(list(arguments))
    return int(ended.value.code or 0)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """As a user would, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "quaestor.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | environment,
    )


def test_explain_takes_a_sort_as_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("explain", BOARD, "--sort", "scheduled,-_id", "--limit", "20", "--json") == 0
    as_fields = capsys.readouterr().out
    assert call("explain", BOARD, "--sort", '{"scheduled": 1, "_id": -1}', "--limit", "20", "--json") == 0
    assert capsys.readouterr().out == as_fields


def test_explain_says_exact_for_a_sorted_and_limited_filter(capsys: pytest.CaptureFixture[str]) -> None:
    status = call("explain", BOARD, "--sort", '{"scheduled": 1, "_id": 1}', "--limit", "20", "--json")
    output = json.loads(capsys.readouterr().out)
    assert status == 0
    assert (output["match"], output["cacheable"]) == ("exact", True)


def test_explain_takes_extended_json_and_pipelines(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("explain", '{"at": {"$gt": {"$date": "2013-07-04T00:00:00Z"}}}', "--json") == 0
    assert json.loads(capsys.readouterr().out)["cacheable"] is True
    assert call("explain", '[{"$match": {"a": 1}}, {"$group": {"_id": "$b"}}]', "--collection", "d.c", "--json") == 0
    output = json.loads(capsys.readouterr().out)
    assert (output["operation"], output["namespace"]) == ("aggregate", "d.c")


def test_explain_says_why_a_query_is_not_cached(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("explain", '{"$where": "this.a > 1"}') == 0
    assert "no: server-side-script" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["{origin: JFK}"], "the filter is not (extended) JSON"),
        ([""], "the filter is not (extended) JSON"),
        (["7"], "the filter is a JSON object"),
        (['{"a": {"$date": "never"}}'], "the filter is not (extended) JSON"),
        (['{"a": {"$foo": 1}}'], "$foo"),
        (["{}", "--sort", "[1]"], "--sort is a JSON object"),
        (["{}", "--sort", "a,,b"], "--sort is fields like scheduled,-_id"),
        (["{}", "--projection", "nothing"], "--projection is not (extended) JSON"),
        (["[1]"], "the stages of a pipeline are objects"),
        (["[]", "--limit", "3"], "a pipeline brings its own"),
        (["{}", "--collection", "flights"], "--collection is database.collection"),
    ],
)
def test_explain_of_a_malformed_query_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("explain", *arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert sentence in output.err
    assert len(output.err.splitlines()) == 1


@pytest.mark.parametrize("hostile", ["\x1b[2J", "\x9b31m", "\x07", "\u202e", "\r"])
def test_texts_of_others_do_not_act_on_the_terminal(hostile: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters are removed in errors, in explanations of a query, and in the list of an application's routes."""
    assert call("explain", "{", "--collection", f"shop{hostile}") == 2
    assert call("explain", json.dumps({f"$x{hostile}": 1})) == 2
    assert call("explain", json.dumps({f"a{hostile}": 1})) == 0
    output = capsys.readouterr()
    assert hostile not in output.out + output.err
    examined = Examined(
        path=f"/{hostile}", route=f"GET {hostile}", reads=(f"db.{hostile}\n  asked twice  the same",),
        not_covered=(hostile,), verdict=Finding.SAME, differs=(),
    )  # fmt: skip
    text = audit_command._text([examined], [f"/x{hostile}"])
    assert hostile not in text
    assert len(text.splitlines()) == 5


def refused(ran: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    for part in parts:
        assert part in ran.stderr


def test_a_busy_port_is_refused_before_anything_starts() -> None:
    with socket.socket() as taken:
        taken.bind((servers.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused(run("demo", "--port", str(port)), f"port {port} on 127.0.0.1 is in use", "choose another port")


def test_a_missing_java_is_refused_before_anything_starts(tmp_path: Path) -> None:
    refused(run("demo", PATH=str(tmp_path), JAVA_HOME=""), "no Java found", "--without-spark")


def test_a_standalone_mongod_is_refused_before_anything_starts() -> None:
    def standalone(folder: Path) -> servers.Server:
        return servers.mongod_server(folder, replica_set=False)

    with servers.running(standalone, "mongod") as server:
        refused(run("demo", MONGO_URL=server.url), "standalone", "--replSet")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--day", "2014-01-01"], ["2013-07-04"]),
        (["--day", "tomorrow"], ["'tomorrow' is not a day"]),
        (["--speed", "0"], ["--speed lies between"]),
    ],
)
def test_a_bad_option_of_the_demo_is_refused(arguments: list[str], parts: list[str]) -> None:
    refused(run("demo", *arguments), *parts)
