"""Modules that are imported at first use, because few applications need them or because they cost much.

    if TYPE_CHECKING:
        import structlog
    else:
        structlog = FirstUse("structlog")

The names of the module are attributes of the object. `docs/adr/0023-imports-at-first-use.md` holds the rule.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class FirstUse:
    """A module in place of its import. The first read of a name imports the module, and the name is kept.

    Several threads may read names at once: Python imports a module once, and each thread waits until the module is complete.
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy, pickle and inspect look for such names, and that is no use
            raise AttributeError(name)
        value = getattr(import_module(self._module), name)
        setattr(self, name, value)
        return value
