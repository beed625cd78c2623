"""Modules load at first use: at the import of two names, at the start of an application, at requests that come at once."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.architecture.sources import ROOT
from tests.late_modules import A_QUAESTOR_NEEDS, FEW_NEED, among

_LOADED = "import json, sys\n{statements}\nprint(json.dumps(sorted(sys.modules)))"
_RESTING = ROOT / "benchmarks" / "importing" / "resting.py"
_AT_ONCE = """
import threading
from quaestor.query import compile_query
THREADS = 8
start = threading.Barrier(THREADS)
found = []

def use():
    start.wait()
    matches = compile_query({filter}).matches
    found.append([matches({document}), matches({{}})])

threads = [threading.Thread(target=use) for _ in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(found == [[True, False]] * THREADS)
"""


def printed(source: str, *arguments: str) -> str:
    """The last line that a fresh interpreter prints."""
    command = [sys.executable, "-W", "error", *((source,) if arguments else ("-c", source)), *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()[-1]


def test_importing_the_two_names_loads_nothing_that_few_need() -> None:
    """A process that imports an application's names holds no part that only a Quaestor, or a rare query, needs."""
    loaded = json.loads(printed(_LOADED.format(statements="from quaestor import Quaestor, QuaestorMiddleware")))
    assert among((*FEW_NEED, *A_QUAESTOR_NEEDS), loaded) == []


def test_a_started_application_with_one_cached_route_loads_nothing_that_few_need(mongo_url: str) -> None:
    """From the start to a hit, an ordinary query loads no pattern engine, no expression operators and no coloured log."""
    given = {"mongo_url": mongo_url, "settled_s": 0, "seconds": 0}
    bare, cached = (
        json.loads(printed(str(_RESTING), json.dumps(given | {"with_quaestor": with_quaestor})))
        for with_quaestor in (False, True)
    )
    loaded = set(cached["loaded"]) - set(bare["loaded"])  # FastAPI loads what it finds, e.g. OpenTelemetry
    assert cached["hit"]
    assert among(FEW_NEED, loaded) == []
    assert among(A_QUAESTOR_NEEDS, loaded) != []


@pytest.mark.parametrize(
    ("filter_", "document"),
    [
        ({"name": {"$regex": "(?<!x)b+$"}}, {"name": "abb"}),
        ({"name": {"$regex": "^(?i)a.*b"}}, {"name": "Axyb"}),
        ({"$expr": {"$gt": [{"$add": ["$a", 1]}, 2]}}, {"a": 2}),
        ({"$jsonSchema": {"required": ["a"]}}, {"a": 1}),
        (
            {"place": {"$geoWithin": {"$centerSphere": [[0, 0], 0.1]}}},
            {"place": {"type": "Point", "coordinates": [0, 0]}},
        ),
    ],
    ids=["bounded", "linear", "expression", "schema", "geography"],
)
def test_first_uses_at_once_all_compute_the_same(filter_: object, document: object) -> None:
    """Threads that meet a part nobody has loaded yet all get it whole: each computes the right result."""
    assert printed(_AT_ONCE.format(filter=filter_, document=document)) == "True"
