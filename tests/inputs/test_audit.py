"""`quaestor audit`: what every GET route reads, what is not covered, and which answers differ."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def audit(mongo_url: str, database: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "quaestor.cli", "audit", *arguments, "--mongo-url", mongo_url],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | {"AUDITED_DATABASE": database} | environment,
    )  # fmt: skip


def test_each_route_says_what_it_reads_or_why_it_is_not_covered(mongo_url: str, prefix: str) -> None:
    done = audit(mongo_url, prefix, "tests.inputs.audited_app:app", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["without_example"] == ["/items/{item}"]
    routes: dict[str, Any] = {route["path"]: route for route in report["routes"]}
    assert list(routes) == ["/items", "/kept", "/now", "/file", "/constant", "/broken"]
    assert routes["/items"]["reads"][0].startswith(f"find on {prefix}.items by (group) sorted by (_id): exact")
    assert {path: route["verdict"] for path, route in routes.items() if route["verdict"]} == {
        "/items": "same",
        "/kept": "same",
    }
    why = {path: route["not_covered"][0].split(" ")[0] for path, route in routes.items() if route["not_covered"]}
    assert why == {"/now": "clock", "/file": "declared", "/constant": "no-reads", "/broken": "failed"}


def test_a_route_that_answers_otherwise_is_found_and_ends_in_status_1(mongo_url: str, prefix: str) -> None:
    """As text; routes with parameters are asked by their examples."""
    done = audit(mongo_url, prefix, "tests.inputs.audited_app:app", "--path", "/items/1?x=2", AUDITED_COUNTER="1")
    assert done.returncode == 1, done.stderr
    assert "DIVERGED: body" in done.stdout
    assert done.stdout.count("DIVERGED") == 1
    assert "needs an example" not in done.stdout
    assert "/items/1?x=2  (GET tests.inputs.audited_app.single)" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tests.inputs.audited_app",), "write module:app"),
        (("tests.inputs.audited_app:nothing",), "cannot be loaded"),
        (("tests.nowhere:app",), "cannot be loaded"),
        (("tests.inputs.audited_app:app", "--path", "items"), "write /items/1"),
        (("tests.inputs.audited_app:quaestor",), "audited_app:quaestor"),
    ],
)
def test_a_name_of_no_app_is_refused_in_a_sentence(
    mongo_url: str, prefix: str, arguments: tuple[str, ...], said: str
) -> None:
    done = audit(mongo_url, prefix, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
