"""Source files of the package, and the names of their modules."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = {"quaestor": "quaestor", "quaestor.middleware": "middleware", "quaestor.cdn_adapters": "cdn_adapters"}
"""Public packages and the folder of each, from the root of the repository."""
PACKAGES = tuple(FOLDERS)
SOURCES = sorted(source for folder in FOLDERS.values() for source in (ROOT / folder).rglob("*.py"))
"""Every source file once: the links below `quaestor/` are not followed."""


def name_of(source: Path) -> str:
    """Dotted name of the module in a file; of a package's `__init__.py` the package's."""
    parts = source.relative_to(ROOT).with_suffix("").parts
    if parts[0] != "quaestor":
        parts = ("quaestor", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
