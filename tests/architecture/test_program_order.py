"""Order of the programs and rooms on top of the grid: the allowed imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import SOURCES, name_of

ORDER = ("explain", "rest", "admin", "simulation", "proxy", "statistics", "doctor", "cli")
"""Each imports only those before it. The demo stands on top of all, and is imported by the command line when it is asked for."""


def imports(tree: ast.AST, *, lazy: bool = True) -> Iterator[str]:
    """Dotted names of the modules that a module imports; lazy: also inside of functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif lazy or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from imports(node, lazy=lazy)


def room_of(name: str) -> str:
    """First part below the package."""
    return name.split(".")[1] if name.startswith("quaestor.") else ""


@pytest.mark.parametrize("source", [source for source in SOURCES if room_of(name_of(source)) in ORDER], ids=name_of)
def test_a_program_imports_only_those_below_it(source: Path) -> None:
    """There is no circle among the programs, also not by imports inside of functions; nobody needs the demo to be installed."""
    tree, own = ast.parse(source.read_text()), room_of(name_of(source))
    below = {own, *ORDER[: ORDER.index(own)]}
    assert {room_of(name) for name in imports(tree)} & set(ORDER) <= below
    assert "demo" not in {room_of(name) for name in imports(tree, lazy=own != "cli")}


@pytest.mark.parametrize(
    "source", [source for source in SOURCES if room_of(name_of(source)) == "realtime"], ids=name_of
)
def test_real_time_queries_know_nothing_of_the_grid(source: Path) -> None:
    """The stage and the subscribers work with any grid that speaks their messages."""
    assert not [name for name in imports(ast.parse(source.read_text())) if room_of(name) == "invalidation"]
