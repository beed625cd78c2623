"""Libraries of single providers, imported when the provider is used."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from quaestor.errors import ConfigurationError


def imported(module: str, *, extra: str, what: str) -> ModuleType:
    """Import a module of an extra of the distribution.

    what: name of the part that needs the module, for people.

    Raises ConfigurationError that names the extra if the module is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigurationError(f"{what} needs {module.split('.')[0]}: pip install 'quaestor[{extra}]'") from error
