"""Generated parts of the documentation site: the public names, the settings, and the commands with their options."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGES = ("quaestor", "quaestor.middleware", "quaestor.cdn_adapters")
ROOT = Path(__file__).parents[2]


def _neighbour(name: str) -> ModuleType:
    """Return a module of this folder: mkdocs loads hooks by path, outside of any package."""
    spec = spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


failure_index = _neighbour("failure_index")
_OUTSIDE = re.compile(r"\]\((\.\./[\w/.-]+?)(#[\w-]+)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with its generated part; links to files of the repository that are no pages become their names."""
    markdown = markdown.replace("<!-- public names -->", "\n".join(public_names()))
    markdown = markdown.replace("<!-- commands -->", "\n".join(commands()))
    markdown = markdown.replace("<!-- settings -->", "\n".join(settings()))
    if page.file.src_uri == "failure_modes.md":
        markdown = failure_index.anchored(markdown)
    folder = Path(page.file.src_uri).parent

    def link(found: re.Match[str]) -> str:
        target = (ROOT / "docs" / folder / found[1]).resolve()
        return found[0] if target.is_relative_to(ROOT / "docs") else f'](# "{target.relative_to(ROOT)}")'

    return _OUTSIDE.sub(link, markdown)


def public_names() -> Iterator[str]:
    """A heading for each package, and a reference for each name that it exports."""
    for package in PACKAGES:
        yield f"\n## `{package}`\n"
        module = import_module(package)
        for name in module.__all__:
            one = getattr(module, name)
            if hasattr(one, "__qualname__"):
                yield f"::: {one.__module__}.{one.__qualname__}\n"
            else:  # a union of types knows neither its name nor where it was made
                yield f"::: {package}.{name}\n"


def settings() -> Iterator[str]:
    """A table of the settings of each group."""
    from quaestor.settings import Settings
    from quaestor.settings.bounds import rows
    from quaestor.settings.whole import GROUPS

    for group, table in {"deployment": Settings, **GROUPS}.items():
        first = next(line for line in (table.__doc__ or "").splitlines() if line)
        yield f"\n## {group}\n\n{first}\n\n| setting | default | values | |\n|---|---|---|---|"
        for row in rows(table).values():
            yield f"| `{row.name}` | `{row.default!r}` | {row.values} | {row.sentence} |"


def commands() -> Iterator[str]:
    """The help of every command."""
    import typer

    from quaestor.cli.main import app

    os.environ["COLUMNS"] = "110"
    yield from _helped(typer.main.get_command(app), "quaestor", None)


def _helped(command: Any, name: str, parent: Any) -> Iterator[str]:
    context = command.make_context(name.rsplit(" ", 1)[-1], [], parent=parent, resilient_parsing=True)
    yield f"\n## `{name}`\n\n```text\n{command.get_help(context)}\n```\n"
    for child in sorted(getattr(command, "commands", {})):
        yield from _helped(command.commands[child], f"{name} {child}", context)
