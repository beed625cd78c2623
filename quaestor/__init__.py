"""Quaestor: exact invalidation of cached MongoDB query results, in the app, the CDN and the browser."""

from quaestor.app import Quaestor
from quaestor.capture import uncacheable
from quaestor.errors import QuaestorError
from quaestor.settings import Settings

__all__ = ["Quaestor", "QuaestorError", "Settings", "uncacheable"]
