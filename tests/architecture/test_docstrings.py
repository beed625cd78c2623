"""Docstrings exist, and list fields one per line. How they read: test_readability.py."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import SOURCES, name_of

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def public(node: ast.AST, path: tuple[str, ...]) -> Iterator[tuple[str, Documented]]:
    """The public classes, functions and methods below a node, by qualified name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not child.name.startswith("_"):
            yield ".".join((*path, child.name)), child
            if isinstance(child, ast.ClassDef):
                yield from public(child, (*path, child.name))


def fields_of(node: Documented) -> set[str]:
    """The names that a docstring may explain as fields: of a class its attributes, of a function its parameters."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return {argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    return {
        child.target.id
        for child in node.body
        if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name)
    } | {
        argument
        for child in node.body
        if isinstance(child, ast.FunctionDef) and child.name == "__init__"
        for argument in fields_of(child)
    }


def faults(name: str, node: Documented) -> Iterator[str]:
    """Sentences about what is wrong with one docstring."""
    text = ast.get_docstring(node)
    if text is None:
        if isinstance(node, ast.Module | ast.ClassDef):
            yield f"{name}: no docstring"
        return
    lines = text.split("\n")
    first = lines[0]
    fields = fields_of(node)
    if first.partition(":")[0].split(", ")[0] in fields and ": " in first:
        yield f"{name}: {first!r} is a field, not the name of the thing"
    for line in lines[1:]:
        stripped = line.strip()
        for field in fields:
            if f". {field}: " in stripped or f"; {field}: " in stripped:
                yield f"{name}: the field {field!r} does not begin a line"


def room_of(source: Path) -> str:
    """The first two parts of a module's name."""
    return ".".join(name_of(source).split(".")[:2])


@pytest.mark.parametrize("room", sorted({room_of(source) for source in SOURCES}))
def test_a_docstring_lists_its_fields(room: str) -> None:
    """Modules and classes have a docstring; each explained field begins a line."""
    problems: list[str] = []
    for source in SOURCES:
        if room_of(source) == room:
            tree = ast.parse(source.read_text())
            module = name_of(source)
            problems += faults(module, tree)
            for name, node in public(tree, (module,)):
                problems += faults(name, node)
    assert problems == []
