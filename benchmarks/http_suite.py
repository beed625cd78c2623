"""The public suite of HTTP caches (cache-tests.fyi) against `quaestor proxy`.

The suite is taken from npm at a pinned version into a temporary folder, with its own origin and its own client; the proxy stands
between both as anybody would start it, once with its defaults and once with what is opt-in. No time is measured.
Run: python -m benchmarks.http_suite
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks import harness
from quaestor.testing.servers import HOST, free_port

SUITE = "http-cache-tests@0.4.5"
CLIENT = "node-fetch@2.7.0"
OPT_IN = {"QUAESTOR_HEURISTIC_FRACTION": "0.1", "QUAESTOR_PARTIAL_ANSWERS": "true"}
"""Behaviour allowed to a shared cache, which the proxy shows if it is configured to."""
_KINDS = """
import tests from './tests/index.mjs'
const found = {}
for (const suite of tests)
  for (const test of suite.tests)
    if (!test.browser_only) found[test.id] = {kind: test.kind || 'required', name: test.name, needs: test.depends_on || []}
console.log(JSON.stringify(found))
"""
"""Required, optimal (here: optional), or a check that nobody fails."""


def fetch(folder: Path) -> Path | None:
    """The unpacked suite in this folder; None if it, or Node, cannot be had."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        return None
    done = subprocess.run(
        [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev", "--legacy-peer-deps", SUITE, CLIENT],
        cwd=folder, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    unpacked = folder / "node_modules" / SUITE.partition("@")[0]
    return unpacked if done.returncode == 0 and unpacked.is_dir() else None


@contextmanager
def running(command: list[str], *, port: int, folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """A server that this command starts, from when it answers; its URL. Raises RuntimeError if it does not."""
    url, log = f"http://{HOST}:{port}", folder / f"{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **environment}, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        for _ in range(600):
            try:
                httpx.get(f"{url}/package.json")
                break
            except httpx.HTTPError:
                if process.poll() is not None:
                    break
                time.sleep(0.1)
        else:
            process.kill()
        if process.poll() is not None:
            raise RuntimeError(f"{command[0]} did not start: {log.read_text()[-1500:]}")
        yield url
    finally:
        process.terminate()
        process.wait(timeout=30)


def outcome(suite: Path, settings: Mapping[str, str], *, tree: Path = Path(__file__).parent.parent) -> dict[str, Any]:
    """The numbers of one run, and why what failed did.

    settings: the proxy's environment.
    tree: of the proxy.
    """
    port, origin_port = free_port(), free_port()
    node = {"npm_config_protocol": "http", "npm_config_port": str(origin_port), "npm_config_pidfile": "server.pid"}
    entry = "import sys; from quaestor.cli.main import main; main(sys.argv[1:])"
    with running(["node", "server/server.mjs"], port=origin_port, folder=suite, environment=node) as origin:
        command = [sys.executable, "-c", entry, "proxy", "--origin", origin, "--listen", f"{HOST}:{port}"]
        with running(command, port=port, folder=suite, environment={"PYTHONPATH": str(tree), **settings}) as url:
            base = {"npm_config_base": url, "npm_package_config_id": ""}
            said = _node(suite, ["cli.mjs"], base)
    kinds = json.loads(_node(suite, ["--input-type=module", "-e", _KINDS], {}))
    results = json.loads(said[said.index("{") :])
    suites: dict[str, Any] = {}
    for kind in ("required", "optimal", "check"):
        of_kind = {name: results.get(name) for name, test in kinds.items() if test["kind"] == kind}
        failed = {
            name: {"test": kinds[name]["name"], "why": "not run" if why is None else why[1]}
            for name, why in of_kind.items()
            if why is not True
        }
        suites[kind] = {"of": len(of_kind), "passed": len(of_kind) - len(failed), "failed": failed}
    return suites


def _node(suite: Path, arguments: list[str], environment: Mapping[str, str]) -> str:
    return subprocess.run(
        ["node", "--no-warnings", *arguments],
        cwd=suite, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600, check=True,
    ).stdout  # fmt: skip


def main() -> None:
    given = harness.arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        suite = fetch(Path(folder))
        if suite is None:
            print(f"{SUITE} cannot be had here: it takes Node, npm and a registry that answers")
            return
        harness.report(
            "http_suite",
            {"suite": SUITE, "defaults": outcome(suite, {}), "opt_in": {**OPT_IN, **outcome(suite, OPT_IN)}},
            keep=not given.no_save,
        )


if __name__ == "__main__":
    main()
