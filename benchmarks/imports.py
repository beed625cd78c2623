"""Cost of importing Quaestor, and of a started app with one cached route; beside an earlier checkout if you like.

    python -m benchmarks.imports [--before CHECKOUT]

Each measurement is a fresh interpreter, with the packages of this environment. Runs before and after alternate, and the result is
their median. `imports` counts processor time, so that a busy machine changes it little. `started` runs three processes at once:
the app without Quaestor, the app with it, and the app with Quaestor of the earlier checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from benchmarks import harness
from quaestor.testing import servers

_ROOT: Final = Path(__file__).parent.parent
_PARTS: Final = _ROOT / "benchmarks" / "importing"
_NAMES: Final = "from quaestor import Quaestor, QuaestorMiddleware"
_STAGES: Final = {
    "alone": ("", _NAMES),
    "beside_fastapi_and_pymongo": ("import fastapi, pymongo", _NAMES),
    "made_beside_fastapi_and_pymongo": ("import fastapi, pymongo", f"{_NAMES}\nQuaestor()"),
}
"""The measured statements, and the imports before them."""
_SETTLED_S: Final = 15.0


def child(checkout: Path, part: str, *arguments: str) -> dict[str, Any]:
    """Report of one fresh interpreter. Raises CalledProcessError if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # the first run writes bytecode for the others
    command = [sys.executable, str(_PARTS / part), *arguments]
    run = subprocess.run(command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    report: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return report


def imports(checkouts: dict[str, Path], *, runs: int) -> dict[str, Any]:
    """Medians by stage and checkout."""
    stages: dict[str, Any] = {}
    for stage, (first, statement) in _STAGES.items():
        reports: dict[str, list[dict[str, Any]]] = {name: [] for name in checkouts}
        for number in range(-1, runs):
            for name, checkout in checkouts.items():
                report = child(checkout, "child.py", first, statement)
                if number >= 0:
                    reports[name].append(report)
        stages[stage] = _compared({name: _medians(each) for name, each in reports.items()})
    return stages


def started(checkouts: dict[str, Path], mongo_url: str, *, rounds: int, seconds: float) -> dict[str, Any]:
    """Medians of the app without Quaestor, and of what each checkout adds to it."""
    kinds = {"bare": _ROOT, **checkouts}
    reports: dict[str, list[dict[str, Any]]] = {name: [] for name in kinds}
    given = {"mongo_url": mongo_url, "settled_s": _SETTLED_S, "seconds": seconds}
    for _ in range(rounds):
        with ThreadPoolExecutor(len(kinds)) as pool:
            running = {
                name: pool.submit(child, checkout, "resting.py", json.dumps(given | {"with_quaestor": name != "bare"}))
                for name, checkout in kinds.items()
            }
            for name, report in running.items():
                reports[name].append(report.result())
    missed = [name for name in checkouts if not all(report["hit"] for report in reports[name])]
    if missed:
        raise RuntimeError(f"no answer came from the cache: {', '.join(missed)}")
    medians = {name: _medians(each) for name, each in reports.items()}
    bare = medians.pop("bare")
    added = {name: {figure: own[figure] - bare[figure] for figure in bare} for name, own in medians.items()}
    return {
        "bare": bare,
        "added": _compared({name: _rounded(own) for name, own in added.items()}),
        "threads": reports["after"][-1]["thread_names"],
    }


def _medians(reports: list[dict[str, Any]]) -> dict[str, float]:
    figures = [name for name in reports[0] if name not in ("hit", "loaded", "thread_names")]
    return _rounded({name: statistics.median(report[name] for report in reports) for name in figures})


def _rounded(figures: dict[str, float]) -> dict[str, float]:
    digits = {"core": 5, "cpu_ms": 1}
    return {name: round(value, digits[name]) if name in digits else round(value) for name, value in figures.items()}


def _compared(by_checkout: dict[str, dict[str, float]]) -> dict[str, Any]:
    """The figures, with the share of what they were before: 0.5 is half."""
    before, after = by_checkout.get("before"), by_checkout["after"]
    if before is None:
        return dict(by_checkout)
    share = {name: round(after[name] / before[name], 3) for name in after if before[name]}
    return {**by_checkout, "after_of_before": share}


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="a checkout of an earlier commit")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0)
    arguments = parser.parse_args()
    checkouts: dict[str, Path] = {"after": _ROOT}
    result: dict[str, Any] = {}
    if arguments.before is not None:
        before = arguments.before.resolve()
        checkouts = {"before": before, **checkouts}
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=before, capture_output=True, text=True, check=True)
        result["before_commit"] = head.stdout.strip()
    result |= {"load_at_start": round(os.getloadavg()[0], 1), "imports": imports(checkouts, runs=arguments.runs)}
    with servers.mongo_url() as mongo_url:
        result["started"] = started(checkouts, mongo_url, rounds=arguments.rounds, seconds=arguments.seconds)
    result["load_at_end"] = round(os.getloadavg()[0], 1)
    harness.save("imports", result)


if __name__ == "__main__":
    main()
