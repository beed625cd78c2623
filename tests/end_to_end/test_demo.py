"""The demo as a user runs it: every promise holds, and nothing is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from quaestor.testing import servers
from quaestor.testing.served_from import ServedFrom, served_from

MARK = "DEMO_TEST_RUN"
VARNISH = servers.varnish_binary() is not None
UNHURRIED = {"QUAESTOR_ACTIVATION_DEADLINE_MS": "20000", "QUAESTOR_STALENESS_BOUND_MS": "5000"}
"""A machine that stands still for a second or three must not bypass the cache; a node that is killed must be noticed soon."""


def marked(run: str) -> list[psutil.Process]:
    """Return every living process that inherited this run's mark, under any parent."""
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == run and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the demo puts its data: not below pytest's own, which varnishd may not enter when root starts it."""
    with tempfile.TemporaryDirectory(prefix="quaestor-test-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@contextmanager
def demo(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    run = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, "-m", "quaestor.cli", "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | UNHURRIED | {MARK: run, "TMPDIR": str(folder)},
        start_new_session=True,
    )
    try:
        yield process, run
    finally:
        with process:
            process.kill()
        for left in marked(run):
            left.kill()


def eventually(look: Callable[[], dict[str, Any] | None], *, within_s: float) -> dict[str, Any] | None:
    """The first thing seen; None if the time is over."""
    deadline_s = time.monotonic() + within_s
    while (seen := look()) is None and time.monotonic() < deadline_s:
        pass
    return seen


STEPS = [
    "the first GET runs the handler",
    "the second GET is a hit with the same bytes",
    "the second GET through Varnish is a hit in Varnish",
    "a write to another airport's flight leaves the hit",
    *(
        f"{kind} evicts, and the next GET shows the new data"
        for kind in ("insert", "update", "replace", "findAndModify", "update_many", "bulk_write", "delete")
    ),
    "an EventSource on the board receives the new answer",
    "a search of the stream receives a new post by push",
    "a departure leaves the cached list at its instant, with no write and no purge",
    "the sketch contains the key while an old copy may be alive",
    "and no longer after",
    "SIGKILL of a matching node, then a write: still invalidated",
]


READS = [
    "/departures/LGA?dest=ORD&limit=5", "/flights/2013-07-03:UA:1545:EWR", "/delays?day=2013-07-03", "/counts/EWR",
    "/counts/JFK/departed?day=2013-07-04", "/airports/LAX", "/airlines", "/weather/JFK?limit=3",
]  # fmt: skip


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["spark", pytest.param("embedded", marks=pytest.mark.slow)])
def test_every_step_of_the_script_holds_and_no_process_is_left(mode: str, folder: Path) -> None:
    arguments = ["--once"] if mode == "spark" else ["--once", "--without-spark"]
    with demo(folder, *arguments) as (process, run):
        out, err = process.communicate(timeout=500)
        steps = {line["step"]: line for line in map(json.loads, out.splitlines())}
        assert process.returncode == 0, f"{out}\n{err}"
        assert all(line.keys() == {"step", "ok", "observed", "latency_ms"} for line in steps.values())
        assert set(STEPS) <= steps.keys()
        skipped = {name for name, line in steps.items() if line["ok"] is None}
        for name in skipped:
            assert mode == "embedded" if "SIGKILL" in name else not VARNISH
        assert all(line["ok"] for name, line in steps.items() if name not in skipped)
        assert [name for name in steps if name.startswith("200 writes")]
        assert marked(run) == []
        assert list(folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_shows_what_happens_and_stops_everything(how: signal.Signals, folder: Path) -> None:
    with demo(folder, "--without-spark", "--speed", "1200") as (process, run):
        assert process.stdout is not None
        printed = ""
        while "stops everything" not in printed:
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr else ""
            printed += line
        live, front = (re.search(rf"{name} +(http://\S+)", printed) for name in ("live page", "application"))
        assert live is not None
        assert front is not None
        with httpx.Client(timeout=10) as client:
            assert "Quaestor" in client.get(live[1]).text

            def all_moving() -> dict[str, Any] | None:
                now: dict[str, Any] = client.get(f"{live[1]}/totals").json()
                moving = [now["writes"], now["invalidations"]["exact"], now["app"]["hits"], now["evicted_ms"]]
                if VARNISH:
                    moving += [now["varnish"] and now["varnish"]["hits"], now["purged_ms"]]
                return now if all(moving) else None

            assert eventually(all_moving, within_s=60), client.get(f"{live[1]}/totals").text
            board = client.get(f"{live[1]}/board/JFK").json()
            assert board["flights"]
            assert f"{front[1]}/search" in client.get(live[1]).text
            assert "EventSource" in client.get(f"{front[1]}/search").text
            assert eventually(lambda: len(client.get(f"{front[1]}/posts?offset=10&limit=5").json()) == 5, within_s=60)

            def cached(path: str) -> dict[str, Any] | None:
                headers = client.get(front[1] + path).headers
                return None if served_from(headers) is ServedFrom.HANDLER else dict(headers)

            for path in READS:
                assert eventually(lambda path=path: cached(path), within_s=60), path  # type: ignore[misc]
            for path in ("/flights/none", "/airports/ZZZ"):
                assert client.get(front[1] + path).status_code == 404
            assert client.get(f"{front[1]}/departures/JFK?limit=0").status_code == 422
            with client.stream("GET", f"{live[1]}/events") as stream:
                first = next(line for line in stream.iter_lines() if line)
            assert json.loads(first.removeprefix("data: "))["events"]
        if VARNISH:
            next(process for process in marked(run) if process.name() == "varnishd").kill()
            assert process.stderr is not None
            assert any("varnish has ended by itself" in line for line in process.stderr)
        process.send_signal(how)
        assert process.wait(timeout=60) == 130
        assert marked(run) == []
        assert list(folder.iterdir()) == []
