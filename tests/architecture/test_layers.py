"""The layers of the house: a room imports from lower floors only, and no two files import each other, however indirectly.

Every import counts: those inside functions, and those under `TYPE_CHECKING` too.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.architecture.sources import FOLDERS, ROOT, SOURCES, name_of

LAYERS: tuple[tuple[str, ...], ...] = (
    (
        "quaestor.errors",
        "quaestor.argument_names",
        "quaestor.clock",
        "quaestor.fast_init",
        "quaestor.first_use",
        "quaestor.thread_switching",
        "quaestor.gc_freezing",
        "quaestor.tasks",
        "quaestor.token_bucket",
    ),
    ("quaestor.model", "quaestor.settings", "quaestor.webhook_signatures"),
    (
        "quaestor.ports",
        "quaestor.purge_ports",
        "quaestor.cdn_ports",
        "quaestor.cluster_time",
        "quaestor.namespaces",
        "quaestor.tags",
        "quaestor.policy",
    ),
    ("quaestor.observability", "quaestor.query"),
    ("quaestor.runtime.supervision",),
    ("quaestor.redis", "quaestor.planning", "quaestor.tables"),
    ("quaestor.event_layer", "quaestor.continuous"),
    ("quaestor.channels",),
    ("quaestor.incremental",),
    ("quaestor.realtime",),
    ("quaestor.cache_sketch", "quaestor.ttl", "quaestor.capture"),
    ("quaestor.store",),
    ("quaestor.read_path", "quaestor.explain"),
    ("quaestor.caching", "quaestor.client"),
    ("quaestor.invalidation.matching", "quaestor.invalidation.ingest"),
    ("quaestor.invalidation.grid", "quaestor.invalidation.registry"),
    ("quaestor.invalidation.effects",),
    ("quaestor.invalidation", "quaestor.storage"),
    ("quaestor.shared_storage",),
    ("quaestor.runtime",),
    ("quaestor.app",),
    ("quaestor.live",),
    ("quaestor.middleware", "quaestor.cdn_adapters"),
    ("quaestor.rest",),
    ("quaestor.admin", "quaestor.simulation", "quaestor.live.websocket"),
    ("quaestor.dashboard",),
    ("quaestor.proxy", "quaestor.statistics", "quaestor.doctor"),
    ("quaestor",),
    ("quaestor.testing",),
    ("quaestor.demo",),
    ("quaestor.cli",),
)
"""Rooms by floor, from the ground up. A room on one floor imports none of its neighbours."""
FLOOR = {room: floor for floor, rooms in enumerate(LAYERS) for room in rooms}

MODULES = {name_of(source): source for source in SOURCES}


class Import(NamedTuple):
    """One import of one module by another.

    line: in the importing file, from 1.
    """

    importer: str
    imported: str
    line: int

    def __str__(self) -> str:
        return f"{MODULES[self.importer].relative_to(ROOT)}:{self.line}: {self.importer} imports {self.imported}"


def imports(module: str, source: Path) -> Iterator[Import]:
    """The project's own modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{source}:{node.lineno}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield Import(module, full if full in MODULES else str(node.module), node.lineno)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno)


@cache
def all_imports() -> list[Import]:
    """Return the imports of every file from other files."""
    return [
        edge
        for module, source in MODULES.items()
        for edge in imports(module, source)
        if edge.imported.partition(".")[0] == "quaestor" and edge.imported != module
    ]


def room_of(module: str) -> str:
    """The room that a module lives in: the longest name in LAYERS that it begins with."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in FLOOR and (name != "quaestor" or module == "quaestor"):
            return name
    raise AssertionError(f"{module} lives in no room of LAYERS: name its floor")


def test_no_file_imports_a_folder_past_its_package() -> None:
    """`import middleware` in a checkout would load a second copy of each module; the package is `quaestor.middleware`."""
    folders = "|".join(set(FOLDERS.values()) - {"quaestor"})
    assert importing(folders, "*.py") == []


def test_the_package_and_the_benchmarks_import_no_tests() -> None:
    """Set-ups that benchmarks and tests share live in `benchmarks/setups`, real servers in `quaestor/testing`."""
    assert importing("tests", "quaestor/*.py", "middleware/*.py", "cdn_adapters/*.py", "benchmarks/*.py") == []


def importing(packages: str, *files: str) -> list[str]:
    """Lines of tracked files that import one of these top-level packages, a regular expression."""
    line = rf"^[[:space:]]*(from|import) ({packages})(\.| |$)[^']*$"
    search = subprocess.run(
        ["git", "grep", "-nE", line, "--", *files], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert search.returncode in (0, 1), search.stderr
    return search.stdout.splitlines()


def test_every_import_is_of_a_module_that_exists() -> None:
    """A name that was moved leaves no import behind, also not one that runs only sometimes."""
    assert [str(edge) for edge in all_imports() if edge.imported not in MODULES] == []


def test_a_room_imports_from_lower_floors_only() -> None:
    """The offending line is named."""
    upwards = []
    for edge in all_imports():
        importer, imported = room_of(edge.importer), room_of(edge.imported)
        if importer != imported and FLOOR[imported] >= FLOOR[importer]:
            upwards.append(f"{edge} (floor {FLOOR[importer]}, {importer}, below floor {FLOOR[imported]}, {imported})")
    assert upwards == []


def test_no_file_imports_itself_however_indirectly() -> None:
    """Strongly connected components of the files (Tarjan, SIAM J. Comput. 1972); each must be a single file."""
    graph: dict[str, set[str]] = {module: set() for module in MODULES}
    for edge in all_imports():
        graph[edge.importer].add(edge.imported)
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = low[module] = len(order)
        stack.append(module)
        for other in graph[module]:
            if other not in order:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], order[other])
        if low[module] == order[module]:
            circle = [stack.pop()]
            while circle[-1] != module:
                circle.append(stack.pop())
            if len(circle) > 1:
                circles.append(sorted(circle))

    for module in sorted(graph):
        if module not in order:
            visit(module)
    assert circles == [], [
        str(edge) for edge in all_imports() if any(edge.importer in c and edge.imported in c for c in circles)
    ]


def test_capture_and_read_path_know_nothing_of_the_grid() -> None:
    """Another registry than the grid's could stand behind them."""
    forbidden = [
        str(edge)
        for edge in all_imports()
        if room_of(edge.importer) in ("quaestor.capture", "quaestor.read_path")
        and edge.imported.startswith(("quaestor.invalidation", "quaestor.realtime"))
    ]
    assert forbidden == []
