"""Parts that every benchmark shares: results with their machine and commit, and load from outside.

Figures are ratios against a baseline measured in the same run, interleaved, because machines are noisy.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx

from quaestor.errors import ConfigurationError
from quaestor.testing.servers import HOST, Server, free_port

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "unknown"
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("pymongo", "redis", "starlette", "uvicorn", "pyspark")},
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def commit() -> str:
    """The commit that was measured; `+changes` if the tree differed from it."""
    root = Path(__file__).parent.parent
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True).stdout.strip()
    dirty = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=no", "--", ":!benchmarks/results"],
        cwd=root, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    return head + ("+changes" if dirty else "")


def save(name: str, result: dict[str, Any]) -> Path:
    """Write benchmarks/results/<name>.json and print it."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    document = {
        "benchmark": name,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
        **result,
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
    print(json.dumps(document, indent=2))
    return path


def report(name: str, result: dict[str, Any], *, keep: bool) -> None:
    """Print a result, and keep it in benchmarks/results if wanted."""
    if keep:
        save(name, result)
    else:
        print(json.dumps(result, indent=2))


def arguments(description: str | None, **numbers: int) -> argparse.Namespace:
    """Arguments of a benchmark's command line: numbers with these defaults, and `--no-save`.

    description: docstring of the benchmark; its first line is shown.
    """
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--no-save", action="store_true")
    return parser.parse_args()


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; share in 0..1."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered) + 0.5) - 1))]


def summary(values: Sequence[float]) -> dict[str, float]:
    """p50, p99, mean and maximum of milliseconds, rounded to microseconds."""
    return {
        "count": len(values),
        "p50_ms": round(percentile(values, 0.5), 3),
        "p99_ms": round(percentile(values, 0.99), 3),
        "mean_ms": round(sum(values) / len(values), 3),
        "max_ms": round(max(values), 3),
    }


def bare_app() -> Any:
    """For uvicorn(): ASGI bytes, the answer that BARE_FROM gives, body and headers, from memory."""
    response = httpx.get(os.environ["BARE_FROM"])
    body = response.content
    headers = [(k, v) for k, v in response.headers.raw if k.lower() not in (b"date", b"server")]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


@contextmanager
def uvicorn(
    app: str,
    *,
    environment: dict[str, str],
    workers: int = 1,
    path: str = "/",
    port: int = 0,
    python: str = sys.executable,
    app_dir: Path | None = None,
) -> Iterator[Server]:
    """A uvicorn process serving the app that `module:factory` makes, ready when path answers at all.

    python: of another environment; app_dir: where its module is.
    """
    port = port or free_port()
    url = f"http://{HOST}:{port}"
    with (
        tempfile.TemporaryDirectory(prefix="quaestor-bench-") as folder,
        # One client for all tries: each client loads the certificates anew, which would take the processor from the server.
        httpx.Client(timeout=5, headers={"connection": "close"}) as client,
    ):
        server = Server(
            "uvicorn",
            [python, "-m", "uvicorn", app, "--host", HOST, "--port", str(port), "--workers", str(workers),
             "--factory", "--log-level", "warning", "--no-access-log", "--loop", "uvloop", "--http", "httptools",
             *(("--app-dir", str(app_dir)) if app_dir else ())],
            Path(folder), port, url,
            lambda: client.get(url + path).status_code > 0,
            environment=environment,
        )  # fmt: skip
        server.start()
        try:
            yield server
        finally:
            server.stop()


_UNIQUE = 'local n = 0; request = function() n = n + 1; return wrk.format("GET", wrk.path .. "?n=%d" .. n) end'
"""A wrk script: no two requests for the same URL; the number keeps the runs apart."""


def wrk(
    url: str, *, seconds: int = 4, connections: int = 32, headers: Sequence[str] = (), unique: int = 0
) -> dict[str, float]:
    """Requests per second and latency of a GET, from one wrk thread. Raises ConfigurationError if wrk is missing.

    unique: a number other than 0 makes every request ask for a URL of its own, with `?n=` and digits that begin with it.
    """
    binary = shutil.which("wrk")
    if binary is None:
        raise ConfigurationError("wrk is not installed: apt-get install wrk")
    arguments = [binary, "-t1", f"-c{connections}", f"-d{seconds}s", "--latency"]
    for header in headers:
        arguments += ["-H", header]
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        if unique:
            script.write(_UNIQUE % unique)
            script.flush()
            arguments += ["-s", script.name]
        text = subprocess.run([*arguments, url], capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in text:
        raise RuntimeError(f"wrk saw errors from {url}:\n{text}")
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    if rate is None:
        raise RuntimeError(f"wrk printed no rate:\n{text}")
    return {"requests_per_s": float(rate[1]), "p50_ms": _wrk_ms(text, "50%"), "p99_ms": _wrk_ms(text, "99%")}


def _wrk_ms(text: str, label: str) -> float:
    match = re.search(rf"{label}\s+([\d.]+)(us|ms|s)", text)
    return round(float(match[1]) * {"us": 0.001, "ms": 1, "s": 1000}[match[2]], 3) if match else float("nan")


def processor_s(pid: int) -> float:
    """Seconds that the threads of a process have run so far; ended threads do not count."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def accepts(port: int) -> bool:
    """Whether something on this machine accepts connections at a port."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def until(condition: Any, *, timeout_s: float = 30.0, every_s: float = 0.02) -> None:
    """Poll until condition() is true; raises TimeoutError with its name otherwise."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{getattr(condition, '__name__', condition)} did not hold within {timeout_s} s")
        time.sleep(every_s)
