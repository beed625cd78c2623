"""Queries that need the package of an extra: exact with it, widened without it or beside another version, with the remedy.

Each case runs in a process of its own whose list of installed packages is changed; `tests/packaging` installs the wheel without
extras.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json
from importlib import metadata

real = metadata.version
hidden = json.loads({hidden!r})

def version(name):
    if name in hidden and hidden[name] is None:
        raise metadata.PackageNotFoundError(name)
    return hidden.get(name) or real(name)

metadata.version = version
from quaestor.model import Operation, Query
from quaestor.planning.plan import plan_query
query = json.loads({query!r})
plan = plan_query(Query(namespace="d.c", operation=Operation.FIND, filter=query["filter"], text_index=query.get("text_index")))
print(json.dumps([plan.match, plan.reason, plan.predicate is None]))
"""
TEXT_INDEX = {
    "v": 2,
    "key": {"_fts": "text", "_ftsx": 1},
    "name": "a_text",
    "weights": {"a": 1},
    "default_language": "english",
    "language_override": "language",
    "textIndexVersion": 3,
}
SPHERE = {"filter": {"at": {"$geoWithin": {"$centerSphere": [[1, 2], 0.1]}}}}
PLANE = {"filter": {"at": {"$geoWithin": {"$box": [[0, 0], [1, 1]]}}}}
NEAR = {"filter": {"at": {"$near": [1, 2], "$maxDistance": 3}}}
TEXT = {"filter": {"$text": {"$search": "dogs"}}, "text_index": TEXT_INDEX}
SINE = {"filter": {"$expr": {"$gt": [{"$sin": "$angle"}, 0.5]}}}
OTHER = {"filter": {"a": {"$gt": 1}}}


def planned(query: dict[str, object], hidden: dict[str, str | None]) -> tuple[str, str | None, bool]:
    """match, reason, and whether every write to the collection counts, for a process without these packages."""
    program = PROGRAM.format(hidden=json.dumps(hidden), query=json.dumps(query))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    match, reason, every = json.loads(done.stdout)
    return match, reason, every


@pytest.mark.parametrize(
    ("query", "package", "reason"),
    [
        (
            SPHERE,
            "s2geometry",
            "a geographic query needs s2geometry, which is not installed: pip install 'quaestor[geo]'",
        ),
        (
            PLANE,
            "s2geometry",
            "a geographic query needs s2geometry, which is not installed: pip install 'quaestor[geo]'",
        ),
        (
            NEAR,
            "s2geometry",
            "a geographic query needs s2geometry, which is not installed: pip install 'quaestor[geo]'",
        ),
        (TEXT, "stop-words", "$text needs stop-words 2018.7.23, which is not installed: pip install 'quaestor[text]'"),
        (SINE, "mpmath", "trigonometry needs mpmath, which is not installed: pip install 'quaestor[decimal]'"),
    ],
    ids=["sphere", "plane", "near", "text", "sine"],
)
def test_without_its_package_a_query_is_widened(query: dict[str, object], package: str, reason: str) -> None:
    assert planned(query, {}) == ("exact", None, False)
    assert planned(query, {package: None}) == ("widened", reason, True)


def test_beside_another_version_of_the_stemmers_a_text_search_is_widened() -> None:
    """Their words would be cut otherwise than mongod cuts them."""
    match, reason, every = planned(TEXT, {"snowballstemmer": "3.0.1"})
    assert (match, every) == ("widened", True)
    assert reason == (
        "$text needs snowballstemmer 1.2.1; 3.0.1 is installed, whose results differ from mongod's: pip install 'quaestor[text]'"
    )


def test_other_queries_need_none_of_them() -> None:
    absent = dict.fromkeys(("s2geometry", "stop-words", "snowballstemmer", "mpmath"))
    assert planned(OTHER, absent) == ("exact", None, False)
