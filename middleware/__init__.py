"""The ASGI middleware: `app.add_middleware(QuaestorMiddleware, quaestor=quaestor)`."""

from middleware.asgi import QuaestorMiddleware
from middleware.browser_client import BrowserClient

__all__ = ["BrowserClient", "QuaestorMiddleware"]
