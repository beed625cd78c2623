"""No text of a stranger costs more than linear time in a regular expression.

Every expression of the packages is found in their source, so a new expression is tested without being named here. Each
is run as it is used, against texts that lead into each of its repeats and go round it many times. Steps are counted,
not timed.
"""

from __future__ import annotations

import ast
import gc
import importlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from quaestor.middleware.page_script import EXAMINED_BYTES, head_opens
from quaestor.middleware.routes import path_pattern
from quaestor.query.expressions.date_format import read_pattern
from tests.counted_steps import CountedPattern, text_of

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("middleware", "cdn_adapters", "quaestor")
_WHOLE, _AT_ONE_PLACE = {"fullmatch"}, {"match"}
_NO_RUN = {"pattern", "flags", "groups", "groupindex"}
_CALLS = {"compile", "match", "fullmatch", "search", "split", "sub", "subn", "findall", "finditer"}
_RUN = re.compile(rf"\bre\.(?:{'|'.join(sorted(_CALLS))})\(")
_ROUNDS = ((32, 256), (256, 2048))
"""Rounds of a repeat, eight times as many for the second text. Bounded repeats pass with the longer pair only."""
_FEW_ROUNDS = ((4, 32),)
"""Rounds for an expression without a repeat: a match of it has a bounded length, so a search costs the same at each place."""
_MOST = 12
"""Steps of the second text by those of the first: 8 if they are linear, near 64 if they are quadratic."""
_PROBES = {" ", "\t", "a", "0"}
_MADE = {
    "middleware/routes.py": [
        (path_pattern(["/a/", "-", "-", "/b"], ""), "fullmatch"),
        (path_pattern(["/", "", "", ""], ""), "fullmatch"),
        (path_pattern(["/", ".", ".", "x"], ".*"), "fullmatch"),
    ],
    "quaestor/query/expressions/date_format.py": [
        (read_pattern("%Y-%m-%dT%H:%M:%S.%L%z"), "fullmatch"),
        (read_pattern("   %G %V %u   %Z   "), "fullmatch"),
    ],
}
"""Expressions that are made of settings or of queries, by the file that makes them."""
_BY_OPERATORS = {
    "quaestor/doctor/hosted_app.py": "the operator's own routes, against the operator's own URLs",
    "quaestor/query/regex.py": "a $regex: its cost is bounded where it is translated (tests/unit/query)",
}


def _texts(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=way)) if way in _CALLS:
                yield node, way


def _ways(name: str, own: str) -> set[str]:
    """The methods by which an expression of this name is run: in its own module, or anywhere if it is public."""
    sources = [own] if name.startswith("_") else _sources().values()
    ways = {way for source in sources for way in re.findall(rf"\b{name}\.([a-z]+)\b", source)}
    return ways - _NO_RUN


@cache
def _sources() -> dict[str, str]:
    files = [file for package in _PACKAGES for file in sorted((_ROOT / package).rglob("*.py"))]
    return {file.relative_to(_ROOT).as_posix(): file.read_text() for file in files}


def _named(path: str, statement: ast.stmt) -> tuple[str, Any] | None:
    target = statement.target if isinstance(statement, ast.AnnAssign) else None
    if isinstance(statement, ast.Assign):
        target = statement.targets[0]
    if not isinstance(target, ast.Name) or all(way != "compile" for _, way in _texts(statement)):
        return None
    module = importlib.import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    value = getattr(module, target.id)
    return (target.id, value) if isinstance(value, re.Pattern) else None


def _expressions() -> Iterator[tuple[str, re.Pattern[Any], set[str]]]:
    for path, source in _sources().items():
        if not _RUN.search(source):
            continue
        tree = ast.parse(source)
        named = set()
        for statement in tree.body:
            if expression := _named(path, statement):
                named |= {id(node) for node in ast.walk(statement)}
                yield f"{path} {expression[0]}", expression[1], _ways(expression[0], source) or {"search"}
        for node, way in _texts(tree):
            if id(node) in named:
                continue
            if isinstance(node.args[0], ast.Constant):
                used = re.match(r"\)\.(\w+)", _after(source, node)) if way == "compile" else None
                yield f"{path}:{node.lineno}", re.compile(node.args[0].value), {used[1] if used else way}
            else:
                assert path in _MADE or path in _BY_OPERATORS, f"{path}:{node.lineno}: name what this is made of"
    for path, made in _MADE.items():
        for number, (pattern, way) in enumerate(made):
            yield f"{path} {number}", pattern, {way}


def _after(source: str, node: ast.Call) -> str:
    lines = source.splitlines()
    return lines[(node.end_lineno or 1) - 1][(node.end_col_offset or 1) - 1 :]


_EXPRESSIONS = sorted(_expressions(), key=lambda expression: expression[0])


def _hostile(pattern: CountedPattern) -> Iterator[tuple[str, str, str]]:
    """Text before, text that is repeated, text after: into each repeat and round it."""
    samples = set(pattern.samples())
    befores = {before for before, _ in samples} | {""}
    rounds = {once for _, once in samples if once} | pattern.members() | _PROBES
    for before in sorted(befores):
        for once in sorted(rounds):
            for after in ("", "\x01"):
                yield before, once, after


def _steps(pattern: CountedPattern, text: str, way: str) -> int:
    pattern.steps = 0
    if {way} <= _WHOLE | _AT_ONE_PLACE:
        pattern.match(text, whole=way in _WHOLE)
    else:
        pattern.scan(text)
    return pattern.steps


def _too_dear(compiled: re.Pattern[Any], ways: set[str]) -> list[str]:
    """The texts whose steps grow faster than their length."""
    pattern = CountedPattern(compiled)
    dear = []
    pairs = _ROUNDS if pattern.repeats() else _FEW_ROUNDS
    for way in sorted(ways):
        for before, once, after in _hostile(pattern):
            for pair in pairs:
                fewer, more = (_steps(pattern, before + once * rounds + after, way) for rounds in pair)
                if more <= _MOST * fewer:
                    break
            else:
                dear.append(f"{way} of {before!r} + {once!r} * n + {after!r}: {fewer} steps, then {more}")
                break
    return dear


@pytest.fixture(autouse=True)
def deep() -> Iterator[None]:
    """The interpreter of expressions nests as deep as a text has rounds.

    The garbage collector is off: it would walk all nested frames again and again, for three quarters of the time.
    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000_000)
    gc.disable()
    yield
    gc.enable()
    sys.setrecursionlimit(before)


@pytest.mark.parametrize(
    ("compiled", "ways"),
    [expression[1:] for expression in _EXPRESSIONS],
    ids=[expression[0] for expression in _EXPRESSIONS],
)
def test_steps_grow_as_the_text_does(compiled: re.Pattern[Any], ways: set[str]) -> None:
    """Eight times the text costs at most twelve times the steps, for every expression and every way into its repeats."""
    assert _too_dear(compiled, ways) == []


def test_every_room_is_searched() -> None:
    """The list is not empty where it matters: pages, keys, ranges, tags, dates, clients, proxy, CDN answers."""
    paths = {name.split(" ")[0].split(":")[0] for name, _, _ in _EXPRESSIONS}
    assert len(_EXPRESSIONS) > 100
    assert paths >= {
        "middleware/page_script.py",
        "middleware/routes.py",
        "quaestor/read_path/variant_key.py",
        "quaestor/read_path/ranges.py",
        "quaestor/read_path/partial_answers.py",
        "quaestor/read_path/shared_cache_rules.py",
        "quaestor/rest/etags.py",
        "quaestor/client/fields.py",
        "quaestor/proxy/request_head.py",
        "quaestor/query/expressions/date_text.py",
        "cdn_adapters/cloudflare.py",
    }


@pytest.mark.parametrize(
    ("text", "way"),
    [
        (rb"http-equiv\s*=\s*[\"']?\s*content-security-policy", "search"),
        (rb"[ \t]*,[ \t]*", "sub"),
        (r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z", "match"),
        (r"(?:a+)+b", "match"),
    ],
)
def test_quadratic_expressions_are_found(text: str | bytes, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test can fail: it finds expressions that cost quadratic time and worse."""
    monkeypatch.setattr(f"{__name__}._ROUNDS", _ROUNDS[:1])
    if text == r"(?:a+)+b":
        pattern = CountedPattern(re.compile(text))
        assert _steps(pattern, "a" * 12, way) > 12 * _steps(pattern, "a" * 6, way)
    else:
        assert _too_dear(re.compile(text), {way})


@pytest.mark.parametrize(
    ("compiled", "ways"),
    [expression[1:] for expression in _EXPRESSIONS],
    ids=[expression[0] for expression in _EXPRESSIONS],
)
def test_counted_matches_are_those_of_python(compiled: re.Pattern[Any], ways: set[str]) -> None:
    """The steps that are counted lead to the ends that `re` finds, so they are those of the expression."""
    counted = CountedPattern(compiled)
    for before, once, after in _hostile(counted):
        for text in (before + once * 3 + after, before + once + before):
            if isinstance(compiled.pattern, bytes):
                given: str | bytes = text.encode("latin-1")
            else:
                given = text
            for whole in (False, True):
                match = compiled.fullmatch(given) if whole else compiled.match(given)
                assert counted.match(text_of(given), whole=whole) == (match and match.end()), (given, whole)


_PAGE = b"<!doctype html><html><head>%s</head><body>%s</body></html>"
_META = b'<meta http-equiv = " Content-Security-Policy" content="script-src \'none\'">'


@pytest.mark.parametrize(
    ("page", "opens"),
    [
        (_PAGE % (b"", b"http-equiv=" * 4 + b" " * 40), True),
        (_PAGE % (_META, b""), False),
        (_PAGE % (b"<title>long</title>", b"x" * EXAMINED_BYTES), True),
        (_PAGE % (b"<style>" + b"x" * EXAMINED_BYTES + b"</style>", b""), False),
        (_PAGE % (b"<style>" + b"x" * EXAMINED_BYTES + b"</style>" + _META, b""), False),
        (b"<!doctype html><!--" + b"x" * EXAMINED_BYTES + b"--><html><head></head>", False),
        (b'{"http-equiv": 1}', False),
    ],
)
def test_a_page_is_changed_where_its_head_is_seen_whole(page: bytes, opens: bool) -> None:
    """A head that does not end in the part that is read may hold a policy, so such a page goes out as it is."""
    at = head_opens(page)
    assert (at is not None) is opens
    assert at is None or page[:at].endswith(b"<head>")
