"""Modules that are imported at first use, because few applications need them or because they cost much.

    if TYPE_CHECKING:
        import structlog
    else:
        structlog = FirstUse("structlog")

The names of the module are attributes of the object. A package whose own names load their modules at first use has

    __getattr__ = names_at_first_use(globals(), {"package.module": "Name other_name"})

`docs/adr/0023-imports-at-first-use.md` holds the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


def names_at_first_use(package: dict[str, Any], names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package (PEP 562): the first read of a name imports its module, and the name is kept.

    package: the package's `globals()`.
    names: by module, the names that the package takes from the module, separated by blanks.
    """
    homes = {name: module for module, taken in names.items() for name in taken.split()}

    def attribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        value = package[name] = getattr(import_module(homes[name]), name)
        return value

    return attribute
