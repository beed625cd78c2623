"""What-ifs: parameters tried on a trace that is still being recorded, and traces that cannot be used."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from quaestor.admin.request import Refused
from quaestor.dashboard import what_if
from quaestor.dashboard.leaving import each_while_there
from quaestor.dashboard.what_if import WhatIf
from quaestor.errors import ConfigurationError
from quaestor.ttl.parameters import TtlParameters, Tuning
from tests.dashboard.running import HERE, OPERATOR, VIEWER, watched
from tests.support import becomes

pytestmark = pytest.mark.anyio

SIMULATING = "quaestor.dashboard.simulating"
CHOSEN = {"default": {"quantile": 0.2}}


def lines(seconds: int = 600) -> list[str]:
    """A result that changes every ten seconds, and is read seven times meanwhile."""
    written = ['{"format":"quaestor trace","version":1,"started_ms":1000,"share":1}']
    for second in range(0, seconds, 10):
        written.append(json.dumps(["f", second * 1_000, "r", ["q"], 1_000, None, 0.0, "db.items"]))
        written += [json.dumps(["s", (second + i) * 1_000, "r", 1]) for i in range(1, 8)]
        written.append(json.dumps(["c", second * 1_000 + 9_000, "q"]))
    return written


def unfinished(path: Path) -> Path:
    """A trace as it is while the app runs: its last line is half written."""
    path.write_text("\n".join(lines()) + '\n["s",60')
    return path


def endless(path: Path) -> None:
    """A trace whose reader waits for ever."""
    os.mkfifo(path)


def read_by_somebody(path: Path) -> bool:
    """Whether a process has begun to read an endless trace. The writer stays until this process ends, or the trace would end."""
    try:
        os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    return True


def children(program: str, *, of: int | None = None) -> list[int]:
    """Processes that run a program, of a parent."""
    parent = os.getpid() if of is None else of
    listed = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in listed if program.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


async def answer_lines(body: dict[str, Any], trace: Path) -> list[dict[str, Any]]:
    question = WhatIf(str(trace), delta_s=10)
    request = question.asked(body, now=TtlParameters(default=Tuning(quantile=0.5)))
    return [json.loads(line) async for line in question.run(request)]


async def test_parameters_are_compared_on_what_was_recorded_so_far(tmp_path: Path) -> None:
    """With the share of each layer, intervals, what is on the front, and progress until then."""
    answers = await answer_lines({"parameters": CHOSEN, "clients": 5, "delta_s": 2}, unfinished(tmp_path / "trace"))
    *progress, last = answers
    assert [step["done"] for step in progress] == list(range(1, progress[-1]["of"] + 1))
    result = last["result"]
    assert result["trace"]["reads"] == 480
    assert result["trace"]["results"] == 1
    assert [point["name"] for point in result["points"]][:2] == ["now", "chosen"]
    assert result["points"][1]["parameters"]["default"]["quantile"] == 0.2
    assert any(point["front"] for point in result["points"])
    now, chosen = (point["figures"] for point in result["points"][:2])
    assert 0 < now["origin_ms"][0] < result["uncached_origin_ms"]
    assert chosen["stale"][0] <= now["stale"][0]
    json.dumps(result, allow_nan=False)


async def test_browsers_fetch_the_sketch_as_the_settings_say_unless_the_trial_says_otherwise(tmp_path: Path) -> None:
    """The page receives the setting, and the server uses it where a call names none."""
    settings = {"trace_file": str(unfinished(tmp_path / "trace")), "sketch_delta_s": 7}
    async with watched(settings=settings) as client:
        assert (await client.get(f"{HERE}/parameters", headers=VIEWER)).json()["delta_s"] == 7
    what_if = WhatIf(settings["trace_file"], delta_s=7)
    for body, expected in (({}, 7), ({"delta_s": 2}, 2)):
        assert what_if.asked({"parameters": CHOSEN} | body, now=TtlParameters())["delta_s"] == expected


async def test_over_http_its_lines_come_one_by_one_to_viewers(tmp_path: Path) -> None:
    """A viewer's right suffices for a what-if; the right to apply parameters is not needed."""
    unfinished(tmp_path / "trace-4711")
    async with watched(settings={"trace_file": str(tmp_path / "trace-{pid}")}) as client:
        got = await client.post(f"{HERE}/what-if", headers=VIEWER, json={"parameters": CHOSEN}, timeout=None)
        assert (got.status_code, got.headers["content-type"]) == (200, "application/x-ndjson")
        assert "result" in json.loads(got.text.splitlines()[-1])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is no trace"),
        ('{"format":"quaestor trace","version":99,"started_ms":0,"share":1}\n', "has version 99"),
        ('{"format":"quaestor trace","version":1,"started_ms":0,"share":1}\n', "nothing was read in this trace"),
        ('{"format":"quaestor trace","version":1,"started_ms":0,"share":1}\n["f",1]\n', "is damaged in line 2"),
        ("\x00\xff" * 50, "is no trace"),
    ],
)
async def test_a_trace_that_is_none_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    answers = await answer_lines({"parameters": CHOSEN}, path)
    assert len(answers) == 1
    assert sentence in answers[0]["problem"]


async def test_without_a_trace_it_is_said_how_one_is_recorded() -> None:
    async with watched() as client:
        got = await client.post(f"{HERE}/what-if", headers=OPERATOR, json={"parameters": CHOSEN})
        assert (got.status_code, "set trace_file" in got.json()["detail"]) == (400, True)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"parameters": {"default": {"quantile": 2}}}, "quantile must lie in"),
        ({"parameters": CHOSEN, "clients": 10**9}, "clients is a number"),
        ({"parameters": CHOSEN, "clients": True}, "clients is a number"),
        ({"parameters": CHOSEN, "delta_s": 0}, "delta_s is a number"),
        ({"parameters": CHOSEN, "delta_s": float("nan")}, "delta_s is a number"),
        ({"parameters": CHOSEN, "trace": "/etc/passwd"}, "unknown: trace"),
        ({}, "must be an object"),
    ],
)
def test_parameters_that_cannot_be_tried_are_refused(tmp_path: Path, body: dict[str, Any], sentence: str) -> None:
    """The operator of the app names the files; a caller never does."""
    with pytest.raises((Refused, ConfigurationError), match=sentence):
        WhatIf(str(unfinished(tmp_path / "trace")), delta_s=10).asked(body, now=TtlParameters())


async def test_one_runs_at_a_time_and_ends_with_its_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second what-if is refused until the first one has ended."""
    question = WhatIf(str(unfinished(tmp_path / "trace")), delta_s=10)
    request = question.asked({"parameters": CHOSEN}, now=TtlParameters())
    first = question.run(request)
    await anext(first)
    with pytest.raises(Refused, match="another what-if is running"):
        await anext(question.run(request))
    await first.aclose()
    monkeypatch.setattr(what_if, "WITHIN_S", 0.0)
    answers = [json.loads(line) async for line in question.run(request)]
    assert "took longer than" in answers[-1]["problem"]


async def test_it_ends_with_its_client_before_its_first_line(tmp_path: Path) -> None:
    """A child that reads a long trace says nothing for a while, and is ended all the same."""
    question = WhatIf(str(tmp_path / "trace"), delta_s=10)
    endless(tmp_path / "trace")
    numbers: list[int] = []

    async def receive() -> dict[str, Any]:
        await asyncio.to_thread(becomes, lambda: numbers.extend(children(SIMULATING)) or numbers)
        return {"type": "http.disconnect"}

    request = {"trace": str(tmp_path / "trace")}
    assert [line async for line in each_while_there(question.run(request), receive)] == []
    assert numbers
    assert not any(map(alive, numbers))


def test_it_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    """A killed process cannot end its what-if, so the what-if ends at the end of its standard input."""
    endless(tmp_path / "trace")
    script = f"""
import asyncio
from quaestor.dashboard.what_if import _lines
async def run():
    async for line in _lines({SIMULATING!r}, {{"trace": {str(tmp_path / "trace")!r}}}):
        pass
asyncio.run(run())
"""
    with subprocess.Popen([sys.executable, "-c", script]) as app:
        becomes(lambda: children(SIMULATING, of=app.pid))
        (child,) = children(SIMULATING, of=app.pid)
        becomes(lambda: read_by_somebody(tmp_path / "trace"))
        app.kill()
    becomes(lambda: not alive(child))


def test_the_largest_trace_of_the_last_day_is_taken(tmp_path: Path) -> None:
    """A process that has just begun has recorded next to nothing; what is older than a day before the newest does not count."""
    assert WhatIf("", delta_s=10).trace() is None
    traces = WhatIf(str(tmp_path / "trace-*"), delta_s=10)
    assert traces.trace() is None
    for name, size, written_s in (("trace-old", 900, 1_000), ("trace-full", 500, 200_000), ("trace-new", 10, 201_000)):
        (tmp_path / name).write_text("x" * size)
        os.utime(tmp_path / name, (written_s, written_s))
    assert traces.trace() == tmp_path / "trace-full"
