"""Admin API: invalidate, look, register; for whoever holds the token. Off unless it is asked for."""

from quaestor.admin.api import AdminApi
from quaestor.admin.token import AdminToken

__all__ = ["AdminApi", "AdminToken"]
