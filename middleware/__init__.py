"""The ASGI middleware: `app.add_middleware(QuaestorMiddleware, quaestor=quaestor)`."""

from middleware.asgi import QuaestorMiddleware

__all__ = ["QuaestorMiddleware"]
