"""The command line: what was foreseen ends in one sentence and status 2, never in a traceback."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from quaestor.cdn_ports import Finding as CdnFinding
from quaestor.cdn_ports import Level
from quaestor.cli import audit_command, main, ttl_commands
from quaestor.event_layer.connecting import event_layer
from quaestor.middleware.audit import Examined
from quaestor.read_path.verification import Finding
from quaestor.redis.clients import shared_client
from quaestor.statistics import published
from quaestor.statistics.rows import COLLECTION, MEASURES
from quaestor.store.outbox_redis import RedisOutbox
from quaestor.testing import servers
from quaestor.ttl.published import Publication
from tests.unit.test_ttl_commands import running

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


HOSTILE = "\x1b[2J\x9b31m\x07\u202e\r\nquaestor: all is well"
"""Acts on a terminal in five ways, and begins a line of its own."""


def test_names_of_collections_do_not_act_on_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In lifetimes that are fitted, and in their publications."""
    trace = tmp_path / "trace"
    running(trace, kind=f"db.{HOSTILE}")
    call("ttl", "fit", str(trace), "--out", str(tmp_path / "lifetimes.json"), "--clients", "2")
    [fitted, *_] = safe_lines(capsys.readouterr().out)
    assert ": 2460 reads" in fitted
    ttl_commands._show(Publication(number=1, base=0, at_ms=0, by=HOSTILE, parameters=None, why=HOSTILE))
    [shown] = safe_lines(capsys.readouterr().out)
    assert shown.startswith("1 at 0 by \\x1b[2J")


def test_published_windows_do_not_act_on_the_terminal(
    redis_url: str, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {
        "start": datetime.fromtimestamp(10, UTC), "window_s": 10, "scope": COLLECTION, "name": f"shop.{HOSTILE}",
        "top": [{"item": HOSTILE, "count": 3}], **dict.fromkeys(MEASURES, 0), "update": 5,
    }  # fmt: skip
    with closing(event_layer(redis_url, prefix)) as layer:
        published.put(layer, prefix, [row], length_s=10, now_ms=20_000)
    assert call("statistics", "show", "--windows", "10", "--redis-url", redis_url, "--deployment", prefix) == 0
    [_, shown] = safe_lines(capsys.readouterr().out)
    assert shown.startswith("  collection shop.\\x1b[2J")
    assert "update 0.5/s" in shown


def test_reasons_of_a_cdn_do_not_act_on_the_terminal(
    redis_url: str, prefix: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In dead letters, and in the findings of a check."""

    async def fill() -> None:
        async with shared_client(redis_url) as client:
            outbox = RedisOutbox(client, deployment=prefix)
            await outbox.put(HOSTILE, ["0tag a"], until_ms=600_000, now_ms=0)
            taken = await outbox.take(HOSTILE, token="t", count=1, lease_ms=60_000, now_ms=0)
            await outbox.bury(HOSTILE, taken, reason=HOSTILE, now_ms=0)

    async def found(app: str, name: str, *, address: str | None) -> list[CdnFinding]:
        return [CdnFinding(level=Level.WARN, sentence=f"{app} {name} {address}: {HOSTILE}")]

    asyncio.run(fill())
    for arguments in (("ls", "--dead"), ("stats",), ("replay",), ("drop",)):
        call("cdn", "queue", *arguments, "--redis-url", redis_url, "--deployment", prefix)
        [shown] = safe_lines(capsys.readouterr().out)
        assert shown.startswith("\\x1b[2J")
    monkeypatch.setattr("quaestor.doctor.cdn_check.check_cdn", found)
    call("cdn", "check", "varnish", "--app", "shop:app")
    [shown] = safe_lines(capsys.readouterr().out)
    assert shown.startswith("warn   varnish: shop:app varnish None: \\x1b[2J")


def safe_lines(output: str) -> list[str]:
    """Return the lines of an output that contains no other control characters."""
    assert all(character.isprintable() or character == "\n" for character in output), repr(output)
    return output.splitlines()


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
