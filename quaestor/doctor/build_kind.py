"""Check of the build: pure Python, or with compiled modules (docs/compiled.md)."""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Final

from quaestor.doctor.diagnosis import Diagnosis, ok

_SHARED_LIBRARY: Final = "__mypyc"
"""End of the name of the library that the compiled modules share; the library is no module of ours."""


def examined() -> list[Diagnosis]:
    """Diagnosis of the build."""
    compiled = len(compiled_modules())
    return [ok("build", f"compiled: {compiled} modules" if compiled else "pure Python")]


def compiled_modules() -> list[str]:
    """Return the names of Quaestor's compiled modules, read from the modules that this process has loaded.

    The matching node is loaded first, because all compiled modules belong to it.
    """
    import quaestor.invalidation.matching.node  # noqa: F401

    return sorted(
        name
        for name, module in list(sys.modules.items())
        if name.startswith("quaestor.")
        and not name.endswith(_SHARED_LIBRARY)
        and (getattr(module, "__file__", None) or "").endswith(tuple(EXTENSION_SUFFIXES))
    )
