"""The ASGI middleware: `app.add_middleware(QuaestorMiddleware, quaestor=quaestor)`."""

from quaestor.middleware.asgi import QuaestorMiddleware
from quaestor.middleware.browser_client import BrowserClient

__all__ = ["BrowserClient", "QuaestorMiddleware"]
