"""SIGKILL at each durable step of a delivery to a broker."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_kill_at_any_step_loses_no_result_and_a_repeated_message_has_its_old_key(tmp_path: Path) -> None:
    """A receiver that drops known keys has each result exactly once, in order."""
    received: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)

    class Broker(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            received[self.path].append((self.headers["webhook-id"], body["results"][0]["result"]))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Broker) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            done = subprocess.run(
                [sys.executable, "-m", "tests.channels.brokers.killed_at_each_step", str(tmp_path), str(server.server_port)],
                cwd=ROOT, capture_output=True, text=True, check=False,
            )  # fmt: skip
        finally:
            server.shutdown()
            thread.join()
    assert done.returncode == 0, done.stderr
    kills = int(done.stdout.splitlines()[-1])
    assert kills > 5
    for step in range(1, kills + 1):
        assert list(dict(received[f"/{step}"]).values()) == [1, 2], step
    assert any(len(messages) > 2 for messages in received.values())
