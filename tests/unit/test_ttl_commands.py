"""The command line on a recorded trace: parameters are fitted, compared and tried."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from quaestor.cli import main


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main.main(list(arguments))
    return int(ended.value.code or 0)


HEADER = '{"format":"quaestor trace","version":1,"started_ms":0,"share":1}'


def running(path: Path, *, changes: Callable[[int], bool] = lambda second: True, kind: str = "db.items") -> Path:
    """Write a trace as it is while the application runs.

    Ten minutes of a result that is read and may change every ten seconds, and a line that is half written.
    """
    lines = [HEADER]
    for second in range(0, 600, 10):
        lines.append(json.dumps(["f", second * 1_000, "r", ["q"], 1_000, None, 0.0, kind]))
        lines += [json.dumps(["s", (second + i) * 1_000, "r", 5]) for i in range(1, 9)]
        if changes(second):
            lines.append(json.dumps(["c", second * 1_000 + 9_000, "q"]))
    path.write_text("\n".join([*lines, '["s",60']))
    return path


def test_a_trace_is_fitted_compared_and_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the command line, with what was learned checked on time that was held back."""
    path, out = running(tmp_path / "trace"), tmp_path / "lifetimes.json"
    lines = path.read_text().splitlines()[:-1]
    path.write_text("\n".join([*lines, json.dumps(["e", len(lines), False])]) + "\n")
    assert call("ttl", "fit", str(path), "--out", str(out), "--stale-at-most", "0.5", "--delta", "5") == 0
    assert "db.items: 2460 reads, lifetimes, quantile" in capsys.readouterr().out
    assert call("ttl", "compare", str(path), str(out), "--delta", "5") == 0
    assert "* " in capsys.readouterr().out
    assert call("ttl", "simulate", str(path), str(out)) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"settings", str(out)}
    path.write_text(lines[0] + "\n" + json.dumps(["e", 1, False]) + "\n")
    assert call("ttl", "fit", str(path), "--out", str(tmp_path / "none")) == 2
    assert "nothing was read in this trace" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_parameters_that_the_held_back_time_refutes_are_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing changes in the two thirds that are fitted to, then everything: long lifetimes look best, and are stale."""
    path, out = running(tmp_path / "trace", changes=lambda second: second >= 400), tmp_path / "lifetimes.json"
    assert call("ttl", "fit", str(path), "--out", str(out), "--stale-at-most", "0.01", "--clients", "2") == 2
    printed = capsys.readouterr()
    assert "db.items: 2460 reads" in printed.out
    assert printed.out.endswith(": the present ones stay\n")
    assert f"nothing is written to {out}: the time held back confirms no other parameters" in printed.err
    assert not out.exists()


def test_a_trace_is_used_while_its_process_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By each command, which says that the recording goes on; what is half written does not count."""
    path, out = running(tmp_path / "trace"), tmp_path / "lifetimes.json"
    for arguments in (
        ("fit", str(path), "--out", str(out), "--stale-at-most", "0.5"),
        ("compare", str(path), str(out)),
        ("simulate", str(path)),
    ):
        assert call("ttl", *arguments) == 0
        assert "has no last line: an application still records it, or was killed" in capsys.readouterr().err


def test_browsers_fetch_the_sketch_as_the_settings_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting counts unless the command names another delta."""
    path = running(tmp_path / "trace")

    def figures(*more: str) -> object:
        assert call("ttl", "simulate", str(path), "--clients", "5", *more) == 0
        return json.loads(capsys.readouterr().out)["settings"]

    at_300, at_1 = figures("--delta", "300"), figures("--delta", "1")
    assert at_300 != at_1
    for delta_s, expected in (("300", at_300), ("1", at_1)):
        monkeypatch.setenv("QUAESTOR_SKETCH_DELTA_S", delta_s)
        assert figures() == expected
