"""Quaestor: exact invalidation of cached MongoDB query results, in the app, the CDN and the browser.

Names are imported when they are first used: a process of the matching grid does not pay for the web part.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quaestor.app import Quaestor
    from quaestor.capture import uncacheable
    from quaestor.errors import QuaestorError
    from quaestor.settings import Settings

__all__ = ["Quaestor", "QuaestorError", "Settings", "uncacheable"]

_HOMES = {
    "Quaestor": "quaestor.app",
    "QuaestorError": "quaestor.errors",
    "Settings": "quaestor.settings",
    "uncacheable": "quaestor.capture",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
