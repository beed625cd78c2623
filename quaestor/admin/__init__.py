"""Admin API: invalidates, shows and registers, for holders of the token. Off unless the configuration turns it on."""

from quaestor.admin.api import AdminApi
from quaestor.admin.token import AdminToken

__all__ = ["AdminApi", "AdminToken"]
