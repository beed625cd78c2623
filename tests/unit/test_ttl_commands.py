"""The command line on a recorded trace: parameters are fitted, compared and tried."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quaestor.cli import main


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main.main(list(arguments))
    return int(ended.value.code or 0)


def test_a_trace_is_fitted_compared_and_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the command line, with what was learned checked on time that was held back."""
    path, out = tmp_path / "trace", tmp_path / "lifetimes.json"
    lines = ['{"format":"quaestor trace","version":1,"started_ms":0,"share":1}']
    for second in range(0, 600, 10):
        lines.append(json.dumps(["f", second * 1_000, "r", ["q"], 1_000, None, 0.0, "db.items"]))
        lines += [json.dumps(["s", (second + i) * 1_000, "r", 5]) for i in range(1, 9)]
        lines.append(json.dumps(["c", second * 1_000 + 9_000, "q"]))
    path.write_text("\n".join([*lines, json.dumps(["e", len(lines), False])]) + "\n")
    assert call("ttl", "fit", str(path), "--out", str(out), "--stale-at-most", "0.5", "--delta", "5") == 0
    assert "db.items: 2460 reads, quantile" in capsys.readouterr().out
    assert call("ttl", "compare", str(path), str(out), "--delta", "5") == 0
    assert "* " in capsys.readouterr().out
    assert call("ttl", "simulate", str(path), str(out)) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"settings", str(out)}
    path.write_text(lines[0] + "\n" + json.dumps(["e", 1, False]) + "\n")
    assert call("ttl", "fit", str(path), "--out", str(tmp_path / "none")) == 2
    assert "nothing was read in this trace" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
    path.write_text(lines[0])
    assert call("ttl", "simulate", str(path)) == 2
    assert "was cut" in capsys.readouterr().err
