"""`python -m tests.recovery.report`: run every failure, write what was measured to benchmarks/results/recovery.json and into
docs/failure_modes.md. With --docs, only the latter, from the results that are there. With -k and an expression for pytest, the
failures that it names; of the others the results of before are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import harness
from tests.recovery.failures import FAILURES

DOCUMENT = Path(__file__).parents[2] / "docs/failure_modes.md"
RESULT = harness.RESULTS / "recovery.json"
TESTS = ("tests/recovery/test_failures.py", "tests/recovery/test_fail_over.py")
BEGIN = "<!-- from benchmarks/results/recovery.json by `python -m tests.recovery.report`: begin -->"
END = "<!-- end -->"


def section(result: Mapping[str, Any]) -> str:
    """Return the section on the measured failures, between and with the two marks."""
    machine = result["machine"]
    lines = [
        BEGIN,
        f"Measured {result['at'][:10]} on {machine['cores']} cores ({machine['cpu']}), commit `{result['commit'][:7]}`.",
        "The deployment: a grid of 2 x 2 cells on Spark, two app workers, Redis, mongod; reads and writes all the time.",
        "Every response was compared with the database's history:",
        f"{sum(failure['responses'] for failure in result['failures'].values()):,} responses, "
        f"{sum(failure['violations'] for failure in result['failures'].values())} of them staler than the bound of "
        f"{result['bound_ms'] / 1000:g} s or than an invalidation that the worker had seen.",
        "Recovery: from the failure, or from its end if it had one, until every cell is fresh and every worker answers from",
        "its cache again. Without cache: the longest time that a worker answered nothing from its cache, the failure included.",
        "A client that waits for an answer sends no other request meanwhile, not for cached answers either.",
        "Stalest: the time, at least, since the database had left the state that a response showed.",
        "",
        "| failure | what happens | seen by | recovery | without cache | stalest |",
        "|---|---|---|---|---|---|",
    ]
    for name, failure in FAILURES.items():
        if (outcome := result["failures"].get(name)) is not None:
            measured = f"{outcome['recovered_s']:.1f} s | {outcome['without_cache_s']:.1f} s"
            measured += f" | {outcome['stalest_ms'] / 1000:.1f} s"
            lines.append(f"| {failure.what} | {failure.then} | {failure.seen} | {measured} |")
    return "\n".join([*lines, END])


def with_section(document: str, text: str) -> str:
    """The document with its generated part replaced."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + text + after


def measure(named: str) -> dict[str, Any]:
    """Runs the tests, all of them if `named` is empty; outcomes by failure, each with the commit it was measured on.

    Raises SystemExit if a test fails, or if of some failure there is no outcome.
    """
    failures = json.loads(RESULT.read_text())["failures"] if named else {}
    commit = harness.commit()
    with tempfile.TemporaryDirectory(prefix="quaestor-recovery-") as folder:
        command = [sys.executable, "-m", "pytest", "-q", *TESTS, *(("-k", named) if named else ())]
        if subprocess.run(command, env=os.environ | {"RECOVERY_RESULTS": folder}, check=False).returncode:
            raise SystemExit("a failure did harm: see above; nothing was written")
        for path in Path(folder).glob("*.json"):
            failures[path.stem] = json.loads(path.read_text()) | {"commit": commit}
    if missing := FAILURES.keys() - failures.keys():
        raise SystemExit(f"no outcome of {', '.join(sorted(missing))}; nothing was written")
    return {name: failures[name] for name in FAILURES}


def main() -> None:
    from benchmarks.setups.faults.world import BOUND_MS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", action="store_true", help="only write the documents")
    parser.add_argument("-k", default="", help="which tests to run, as pytest's -k")
    options = parser.parse_args()
    if not options.docs:
        harness.save("recovery", {"bound_ms": BOUND_MS, "failures": measure(options.k)})
    result = json.loads(RESULT.read_text())
    DOCUMENT.write_text(with_section(DOCUMENT.read_text(), section(result)))


if __name__ == "__main__":
    main()
