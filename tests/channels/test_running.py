"""Channels of a folder run by the command, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from quaestor.channels.datasets import Dataset
from tests.channels.statements_world import StatementsWorld


def test_the_command_runs_channels_and_notifies_their_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A push channel that statements created delivers a record, once it is published, to the real receiver of its broker."""
    received: Queue[dict[str, Any]] = Queue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("QUAESTOR_CONTINUOUS_FOLDER", str(tmp_path))
    monkeypatch.setenv("QUAESTOR_WEBHOOK_NETWORKS", "127.0.0.0/8")
    world = StatementsWorld(tmp_path, webhook_networks=("127.0.0.0/8",))
    world.run(
        f"""
        CREATE ACTIVE DATASET Tweets(tid bigint, area text) PRIMARY KEY tid;
        CREATE BROKER b AT 'http://127.0.0.1:{server.server_port}/';
        CREATE CONTINUOUS PUSH CHANNEL Local(area text) PERIOD 1 SECOND
          {{ SELECT t.tid FROM Tweets t WHERE is_new(t) AND t.area = area }};
        """
    )
    ((subscription,),) = world.rows("SUBSCRIBE TO Local('OC') ON b")
    dataset = Dataset.open(world.channels.parts.catalogue, "Tweets")
    dataset.insert([{"tid": 1, "area": "OC"}, {"tid": 2, "area": "LA"}])
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell in the background ignores it
    command = [sys.executable, "-c", f"{heard}; from quaestor.cli.main import main; main()", "channels", "run"]
    with subprocess.Popen(command, env=dict(os.environ)) as process:
        try:
            message = received.get(timeout=120)
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    server.shutdown()
    server.server_close()
    assert message["channelName"] == "Local"
    (result,) = message["results"]
    assert (result["subscriptionIds"], result["result"]) == ([subscription], {"tid": 1})
