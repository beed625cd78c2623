"""Channels of a folder from the first statement to the last result: real commands, a real receiver, real HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from quaestor.cli.main import main
from quaestor.testing.servers import HOST, free_port
from quaestor.testing.serving import served
from quaestor.webhook_signatures import Signer

HEARD = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell in the background ignores it
)


class Commands:
    """Commands of `quaestor` on one folder, in this process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        (folder / "sources").mkdir()
        monkeypatch.setenv("QUAESTOR_CONTINUOUS_FOLDER", str(folder / "tables"))
        monkeypatch.setenv("QUAESTOR_FEED_FOLDER", str(folder / "sources"))
        monkeypatch.setenv("QUAESTOR_WEBHOOK_NETWORKS", "127.0.0.0/8")
        self._capsys = capsys

    def __call__(self, *arguments: str) -> list[str]:
        with pytest.raises(SystemExit) as ended:
            main([*arguments])
        output = self._capsys.readouterr()
        assert ended.value.code == 0, output.err
        return output.out.splitlines()


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(tmp_path, monkeypatch, capsys)


@contextmanager
def receiver() -> Iterator[tuple[str, Queue[tuple[dict[str, str], str]]]]:
    """Run the receiver of a broker; give its URL and its requests."""
    received: Queue[tuple[dict[str, str], str]] = Queue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            received.put(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer((HOST, 0), Receiver)
    with served(server):
        yield f"http://{HOST}:{server.server_port}/", received


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `quaestor channels run` in a process of its own until the block ends; Ctrl-C ends it with status 0."""
    command = [
        sys.executable,
        "-c",
        f"{HEARD}; from quaestor.cli.main import main; main()",
        "channels",
        "run",
        *arguments,
    ]
    with subprocess.Popen(command, env=dict(os.environ)) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0


def posted(client: httpx.Client, path: str, **request: Any) -> dict[str, Any]:
    """Post until the server and the feed have begun; return the answer."""
    end_s = time.monotonic() + 120
    while time.monotonic() < end_s:
        try:
            answer = client.post(path, **request)
        except httpx.ConnectError:
            time.sleep(0.05)
            continue
        if answer.status_code != 503:
            assert answer.status_code == 200, answer.text
            return dict(answer.json())
        time.sleep(0.05)
    raise AssertionError("the feed does not begin")


@pytest.mark.slow
def test_records_of_feeds_reach_subscribers_by_push_and_by_pull(commands: Commands, tmp_path: Path) -> None:
    """Everything by commands: records of a file and of a POST come to a broker in signed requests, and as pages that it pulls."""
    port = free_port()
    with receiver() as (url, received):
        created = commands(
            "channels",
            "execute",
            f"""
            CREATE ACTIVE DATASET Tweets(tid bigint, area text) PRIMARY KEY tid;
            CREATE FEED Files WITH {{"type": "files", "path": "tweets.ndjson"}};
            CREATE FEED Posts WITH {{"type": "http"}};
            CONNECT FEED Files TO DATASET Tweets;
            CONNECT FEED Posts TO DATASET Tweets AS UPSERT;
            CREATE BROKER station AT '{url}';
            CREATE CONTINUOUS PUSH CHANNEL Pushed(area text) PERIOD 1 SECOND
              {{ SELECT t.tid FROM Tweets t WHERE is_new(t) AND t.area = area }};
            CREATE CONTINUOUS CHANNEL Pulled(area text) PERIOD 1 SECOND
              {{ SELECT t.tid FROM Tweets t WHERE is_new(t) AND t.area = area }};
            START FEED Files; START FEED Posts
            """,
        )
        (key,) = [match[1] for line in created if (match := re.search("broker station with the key (.*)", line))]
        signer = Signer(SecretStr(key), name="key")
        pushed, pulled = (
            json.loads(commands("channels", "subscribe", name, '"OC"', "--on", "station")[0])["id"]
            for name in ("Pushed", "Pulled")
        )
        (tmp_path / "sources" / "tweets.ndjson").write_text(
            '{"tid": 1, "area": "OC"}\n{"tid": 2, "area": "LA"}\n{"tid": 1}\n'
        )
        with (
            running("--listen", f"{HOST}:{port}"),
            httpx.Client(base_url=f"http://{HOST}:{port}", timeout=60) as client,
        ):
            lines = {"content-type": "application/x-ndjson", "idempotency-key": "a"}
            for repeated in (False, True):
                answer = posted(client, "/feeds/Posts", content='{"tid": 3, "area": "OC"}\n', headers=lines)
                assert (answer["accepted"], answer["repeated"]) == (not repeated, repeated)
            results, noticed = [], 0
            while len(results) < 2 or not noticed:
                fields, body = received.get(timeout=120)
                assert signer.accepts(fields, body)
                message = json.loads(body)
                if message["channelName"] == "Pushed":
                    results += [(result["subscriptionIds"], result["result"]["tid"]) for result in message["results"]]
                else:
                    assert message["subscriptionIds"] == [[pulled]]
                    noticed += 1
            assert sorted(results) == [([pushed], 1), ([pushed], 3)]
            target = "/channels/Pulled/results?broker=station"
            assert client.get(target).status_code == 401
            rows: set[int] = set()
            while rows != {1, 3}:
                page = client.get(target, headers=signer.fields("m", f"GET {target}", at_s=time.time()))
                rows = {result["result"]["tid"] for run in page.json()["runs"] for result in run["results"]}
            own = client.get(f"/channels/Pulled/subscriptions/{pulled}/results").json()
            assert {result["result"]["tid"] for run in own["runs"] for result in run["results"]} == {1, 3}
            acknowledgement = json.dumps({"broker": "station", "run": own["next"]})
            answer = client.post(
                "/channels/Pulled/acknowledgements",
                content=acknowledgement,
                headers=signer.fields("m", acknowledgement, at_s=time.time()),
            )
            assert answer.json()["channel"] == "Pulled"
            (letter,) = commands("sql", "-c", "SELECT l.feed, l.reason FROM Files_dead_letters l")[2:-1]
            assert "the key is there already" in letter or "the key occurs twice" in letter
        stopped = commands("channels", "execute", "STOP FEED Files; DROP FEED Files; SHOW FEEDS")
        assert stopped[:2] == ["stopped feed Files", "dropped feed Files"]
        (left,) = map(json.loads, stopped[2:])
        assert left == {
            "name": "Posts", "type": "http", "state": "started", "dataset": "Tweets", "mode": "upsert", "owner": "",
        }  # fmt: skip


def test_the_command_runs_channels_without_a_server(commands: Commands) -> None:
    """A push channel delivers a record that was there before the process began."""
    with receiver() as (url, received):
        commands(
            "channels",
            "execute",
            f"""
            CREATE ACTIVE DATASET Tweets(tid bigint) PRIMARY KEY tid;
            CREATE FEED Files WITH {{"type": "files", "path": "tweets.ndjson"}};
            CONNECT FEED Files TO DATASET Tweets;
            START FEED Files;
            CREATE BROKER station AT '{url}';
            CREATE CONTINUOUS PUSH CHANNEL All_of_them() PERIOD 1 SECOND {{ SELECT t.tid FROM Tweets t WHERE is_new(t) }};
            SUBSCRIBE TO All_of_them() ON station
            """,
        )
        Path(os.environ["QUAESTOR_FEED_FOLDER"], "tweets.ndjson").write_text('{"tid": 7}\n')
        with running():
            _, body = received.get(timeout=120)
    assert [result["result"] for result in json.loads(body)["results"]] == [{"tid": 7}]
