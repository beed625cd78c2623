"""Sizes of functions, classes and modules: parameters, attributes and lines have limits over all sources."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tests.architecture.sources import ROOT, SOURCES

MOST_PARAMETERS: Final = 8
MOST_ATTRIBUTES: Final = 15
MOST_LINES: Final = 400

COMMAND_LINE: Final = "the options of a command"
PUBLIC: Final = "the documented keyword options of a public name"
EXCEPTIONS: Final[dict[str, str]] = {
    "quaestor/settings/arguments.py::SettingsArguments": "the settings, each by its name",
    "quaestor/policy.py::RoutePolicy": "the options of `@cached`",
    "quaestor/caching.py::cached": PUBLIC,
    "middleware/asgi.py::QuaestorMiddleware.__init__": PUBLIC,
    "quaestor/rest/router.py::QuaestorRouter.__init__": PUBLIC,
    "cdn_adapters/akamai.py::Akamai.__init__": PUBLIC,
    "cdn_adapters/azure_front_door.py::AzureFrontDoor.__init__": PUBLIC,
    "cdn_adapters/cloudflare.py::Cloudflare.__init__": PUBLIC,
    "cdn_adapters/cloudfront.py::CloudFront.__init__": PUBLIC,
    "quaestor/rest/limits.py::Limits": PUBLIC,
    "quaestor/live/websocket/limits.py::SocketLimits": PUBLIC,
    "quaestor/live/websocket/requests.py::Subscribe": "the fields of a message on the wire",
    "quaestor/cli/main.py::proxy": COMMAND_LINE,
    "quaestor/cli/main.py::explain": COMMAND_LINE,
    "quaestor/cli/ttl_commands.py::apply": COMMAND_LINE,
    "quaestor/cli/ttl_commands.py::learn": COMMAND_LINE,
    "quaestor/cli/cluster_commands.py::run_cluster": COMMAND_LINE,
    "quaestor/cli/cluster_commands.py::resize": COMMAND_LINE,
    "quaestor/proxy/command.py::ProxyCommand": COMMAND_LINE,
    "quaestor/proxy/options.py::ProxyOptions": COMMAND_LINE,
    "quaestor/invalidation/grid/cell_stats.py::CellStats": "the figures of a cell, as the event layer keeps them",
    "quaestor/observability/request_metrics.py::RequestMetrics": "the exported metrics of requests, each by its name",
    "quaestor/observability/telemetry.py::Telemetry": "the groups of metrics, each by its room",
    "quaestor/simulation/simulate.py::Figures": "a row of a simulation's results",
    "quaestor/event_layer/image_bytes.py::image_bytes": "the fields of an image in a write pipeline",
    "quaestor/query/expressions/date_parts.py::_from_parts": "the fields of `$dateFromParts`",
    "quaestor/simulation/kernel.py::run": "the arrays of compiled code, which takes no objects",
}
"""Functions and classes that mirror a format or a public interface, with the reason of each."""

LEFT: Final = Path(__file__).with_name("sizes_left.json")
"""Functions, classes and modules that are still too large. The list only shrinks."""

ALL_SOURCES: Final = [
    *SOURCES,
    *(path for folder in ("benchmarks", "tests", "examples") for path in sorted((ROOT / folder).rglob("*.py"))),
]


class Size(NamedTuple):
    """Size of one function, class or module.

    name: path of the file, and the qualified name in it.
    """

    name: str
    number: int
    limit: int


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of parameters without `self` and `cls`."""
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    variadic = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return len(names) + len(variadic) - (names[:1] in (["self"], ["cls"]))


def attributes(definition: ast.ClassDef) -> int:
    """Return the number of attributes: the annotated ones of the class, and the ones that its methods assign."""
    annotated = {
        statement.target.id
        for statement in definition.body
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and "ClassVar" not in ast.dump(statement.annotation)
    }
    assigned = {
        node.attr
        for method in definition.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    return len(annotated | assigned)


def sizes(tree: ast.AST, name: str) -> Iterator[Size]:
    """Yield the sizes of all functions and classes below a node."""
    separator = "." if "::" in name else "::"
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{name}{separator}{child.name}"
            yield Size(inner, parameters(child), MOST_PARAMETERS)
            yield from sizes(child, inner)
        elif isinstance(child, ast.ClassDef):
            inner = f"{name}{separator}{child.name}"
            yield Size(inner, attributes(child), MOST_ATTRIBUTES)
            yield from sizes(child, inner)
        else:
            yield from sizes(child, name)


@cache
def too_large() -> dict[str, int]:
    """Return all functions, classes and modules above their limit, with their size."""
    large: dict[str, int] = {}
    for source in ALL_SOURCES:
        text = source.read_text()
        name = str(source.relative_to(ROOT))
        of_file = [Size(name, text.count("\n"), MOST_LINES)] if source in SOURCES else []
        large.update(
            (size.name, size.number) for size in (*of_file, *sizes(ast.parse(text), name)) if size.number > size.limit
        )
    return large


def test_nothing_is_larger_than_its_limit() -> None:
    """A function has at most 8 parameters, a class at most 15 attributes, a module of the package at most 400 lines.

    Data that mirrors a format is an exception, with its reason.
    """
    left = json.loads(LEFT.read_text())
    assert {
        name: size for name, size in too_large().items() if name not in EXCEPTIONS and size > left.get(name, 0)
    } == {}


def test_the_list_of_what_is_left_only_shrinks() -> None:
    """Each number in `sizes_left.json` is the present one, of a module at least near it; no exception is without need."""
    left = json.loads(LEFT.read_text())
    now = too_large()
    assert [
        name for name, size in left.items() if not (now.get(name) == size or ("::" not in name and name in now))
    ] == []
    assert [name for name in EXCEPTIONS if name not in too_large()] == []


def test_sizes_count_what_they_say() -> None:
    """Parameters leave `self` out and count variadic ones; attributes count fields and assignments once."""
    text = """
class Part:
    field: int
    CONSTANT: ClassVar[int] = 1

    def __init__(self, one, /, two, *rest, three=0, **more):
        self.one, self._two = one, two
        self.field = three
"""
    assert [(size.name, size.number) for size in sizes(ast.parse(text), "f.py")] == [
        ("f.py::Part", 3),
        ("f.py::Part.__init__", 5),
    ]
