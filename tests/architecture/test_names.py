"""Names say what they hold: variables, parameters, fields and functions are not called by a pronoun or a participle alone.

The banned names are in plain_words.toml. Rooms that still use them are in names_left.json, with their number of uses.
`python -m tests.architecture.test_names ROOM` prints the uses; `--write` lowers the numbers.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, SOURCES, name_of
from tests.architecture.test_readability import RULES, room_of

BANNED = frozenset(RULES["banned_names"])
LEFT_FILE = Path(__file__).with_name("names_left.json")


def bound_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield each binding of a name, with its line: assignments, loops, parameters, fields, functions, imports and patterns."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store(), lineno=line) | ast.arg(arg=name, lineno=line):
                yield line, name
            case ast.FunctionDef(name=name, lineno=line) | ast.AsyncFunctionDef(name=name, lineno=line):
                yield line, name
            case ast.Attribute(attr=name, value=ast.Name(id="self"), ctx=ast.Store(), lineno=line):
                yield line, name
            case (
                ast.alias(asname=str(name), lineno=line)
                | ast.ExceptHandler(name=str(name), lineno=line)
                | ast.MatchAs(name=str(name), lineno=line)
                | ast.MatchStar(name=str(name), lineno=line)
            ):
                yield line, name


@cache
def uses() -> dict[str, list[str]]:
    """Return the places where a banned name is bound, by room."""
    by_room: dict[str, list[str]] = {}
    for source in SOURCES:
        for line, name in bound_names(ast.parse(source.read_text())):
            if name.lstrip("_") in BANNED:
                place = f"{source.relative_to(ROOT)}:{line}: {name}"
                by_room.setdefault(room_of(name_of(source)), []).append(place)
    return by_room


def left() -> dict[str, int]:
    """Return the numbers of uses that rooms may have until they are rewritten. A room that is not named has none."""
    numbers: dict[str, int] = json.loads(LEFT_FILE.read_text())
    return numbers


@pytest.mark.parametrize("room", sorted({room_of(name_of(source)) for source in SOURCES}))
def test_names_are_nouns_of_the_domain(room: str) -> None:
    """A clean room binds no banned name; another binds no more than it did."""
    places = uses().get(room, [])
    assert len(places) <= left().get(room, 0), "\n".join(places)


def test_remaining_exceptions_only_shrink() -> None:
    """Each number in names_left.json is the present one."""
    assert left() == {room: len(places) for room, places in uses().items()}


@pytest.mark.parametrize(
    "code",
    [
        "one = 1",
        "for one in events: pass",
        "[one.key for one in events]",
        "lambda one: one",
        "def _found(self): pass",
        "def read(told): pass",
        "class Entry:\n    found: int",
        "self._told = {}",
        "if (found := search()): pass",
        "with opened() as one: pass",
        "import codec as one",
        "try: pass\nexcept ValueError as told: pass",
        "match event:\n    case [one, *found]: pass",
    ],
)
def test_each_kind_of_binding_is_recognised(code: str) -> None:
    """Each kind of binding is recognised."""
    assert any(name.lstrip("_") in BANNED for _, name in bound_names(ast.parse(code)))


def test_tests_are_named_by_nouns() -> None:
    """No test is named by a pronoun: its name says the thing and the promise."""
    pronouns = re.compile(r"def (test_(?:what|who|whoever|whatever)_\w+)\(")
    tests = (ROOT / "tests").rglob("test_*.py")
    assert [name for path in tests for name in pronouns.findall(path.read_text())] == []


def test_a_noun_is_no_fault() -> None:
    """A noun passes, and so does a banned name that is only read."""
    code = "for entry in entries: print(entry.found, one)"
    assert not any(name.lstrip("_") in BANNED for _, name in bound_names(ast.parse(code)))


if __name__ == "__main__":
    for room in (argument for argument in sys.argv[1:] if argument != "--write"):
        print(*uses().get(room, []), sep="\n")
    if "--write" in sys.argv:
        before = left()
        lowered = {room: min(len(places), before.get(room, 0)) for room, places in sorted(uses().items())}
        LEFT_FILE.write_text(json.dumps({room: number for room, number in lowered.items() if number}, indent=2) + "\n")
