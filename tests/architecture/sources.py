"""Source files of the three packages, and the names of their modules."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("quaestor", "middleware", "cdn_adapters")
SOURCES = sorted(source for package in PACKAGES for source in (ROOT / package).rglob("*.py"))


def name_of(source: Path) -> str:
    """Dotted name of the module in a file; of a package's `__init__.py` the package's."""
    parts = source.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
