"""Construction of the middleware: a wrong argument is one readable error, at the start of the app.

Starlette constructs middlewares in its first lifespan or request. An exception there ends the lifespan. Servers then assume an
app without a lifespan: they start, and each request fails. Therefore a wrong argument becomes an app that refuses to start.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, TypeVar, cast

from quaestor.argument_names import unknown_name
from quaestor.errors import ConfigurationError
from quaestor.middleware.interface import Receive, Scope, Send
from quaestor.settings import argument_names

_Made = TypeVar("_Made")


class RefusedApp:
    """The app in place of a middleware with wrong arguments: servers do not start it, and each request raises the error."""

    def __init__(self, error: ConfigurationError) -> None:
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.failed", "message": str(self._error)})
        raise self._error.with_traceback(None)


class ReadableRefusal(type):
    """The metaclass of the middleware: it checks names of arguments, and on an event loop turns errors into a RefusedApp.

    Outside an event loop, as in `app = QuaestorMiddleware(app, ...)` of a module, the ConfigurationError is raised.
    """

    @property
    def __signature__(cls) -> inspect.Signature:
        """The parameters of the middleware, for help() and editors. Instances do not see a property of the metaclass."""
        constructor = inspect.signature(cls.__init__)  # type: ignore[misc]
        return constructor.replace(
            parameters=list(constructor.parameters.values())[1:], return_annotation=inspect.Signature.empty
        )

    def __call__(cls: type[_Made], *args: Any, **kwargs: Any) -> _Made:
        """Construct the middleware, or a RefusedApp in its place."""
        try:
            _check_names(cls, kwargs)
            return cast(_Made, type.__call__(cls, *args, **kwargs))
        except ConfigurationError as error:
            if not _on_a_loop():
                raise
            return cast(_Made, RefusedApp(error))


def _check_names(cls: type, given: dict[str, Any]) -> None:
    """Raise ConfigurationError for an unknown name, and if there is no Quaestor."""
    taker, known = f"{cls.__name__}()", inspect.signature(cls.__init__).parameters  # type: ignore[misc]
    for name in given:
        if name in known:
            continue
        if name in argument_names():
            raise ConfigurationError(
                f"{taker} takes no settings: {name!r} is one of Quaestor's; write Quaestor({name}=...)"
            )
        raise ConfigurationError(unknown_name(taker, name, [name for name in known if name not in ("self", "app")]))
    quaestor = given.get("quaestor")
    if not hasattr(quaestor, "read_path"):
        value = "is missing" if quaestor is None else f"is a {type(quaestor).__name__}"
        raise ConfigurationError(f"{taker}: quaestor {value}; write quaestor=Quaestor()")


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
