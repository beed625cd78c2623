"""Application that a command hosts in its own process: loaded by name, between the start and the end of its lifespan."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from quaestor.errors import ConfigurationError
from quaestor.tasks import ended

if TYPE_CHECKING:
    from quaestor.middleware import QuaestorMiddleware

_DEEPEST = 64
_PATIENCE_S = 20.0
_LOOK_AGAIN_S = 0.05
_PARAMETER = re.compile(r"\{[^{}:]*+(?P<any>:path)?+[^{}]*+\}")


def load(name: str) -> Any:
    """Load the object that `module:name` names. Raises ConfigurationError."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ConfigurationError(f"{name!r} names no app: write module:app, as for a server")
    sys.path.insert(0, "")
    try:
        target: Any = importlib.import_module(module)
        for part in attribute.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"{name!r} cannot be loaded: {error}") from error
    return target


def load_app(name: str) -> Any:
    """Load the app that `module:app` names, as a server would. Raises ConfigurationError."""
    app = load(name)
    if not callable(app):
        raise ConfigurationError(f"{name!r} is a {type(app).__name__} and no ASGI app")
    return app


@asynccontextmanager
async def started(app: Any) -> AsyncIterator[None]:
    """Keep the app between the start and the end of its lifespan. Raises ConfigurationError if it refuses either."""
    requests: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
    life = asyncio.create_task(app(scope, requests.get, said.put))
    try:
        await _through(life, requests, said, "lifespan.startup")
        yield
        await _through(life, requests, said, "lifespan.shutdown")
    finally:
        await ended((life,))
        if not life.cancelled():
            life.exception()  # reported already, as the refusal


def middleware_of(app: Any) -> QuaestorMiddleware:
    """Cache in or around a started app. Raises ConfigurationError if there is none."""
    from quaestor.middleware import QuaestorMiddleware

    for layer in layers(app):
        if isinstance(layer, QuaestorMiddleware):
            return layer
    raise ConfigurationError("the app has no QuaestorMiddleware: add it with app.add_middleware(...)")


def engine_of(app: Any) -> Any:
    """Quaestor of an app that need not be started, or the object itself if it is a Quaestor; None if there is none."""
    if hasattr(app, "read_path"):
        return app
    for layer in layers(app):
        if hasattr(layer, "engine"):
            return layer.engine
        for middleware in getattr(layer, "user_middleware", ()):  # Starlette makes them at its start
            if "quaestor" in middleware.kwargs:
                return middleware.kwargs["quaestor"]
    return None


def layers(app: Any) -> list[Any]:
    """App and the layers that it wraps, from the outside in, as far as the common attributes of ASGI programs show them."""
    apps = [app]
    while len(apps) < _DEEPEST:
        outer = apps[-1]
        inner = getattr(outer, "middleware_stack", None) or getattr(outer, "app", None) or getattr(outer, "_app", None)
        if inner is None or any(inner is app for app in apps):
            break
        apps.append(inner)
    return apps


async def until_serving(middleware: QuaestorMiddleware) -> None:
    """Return once answers can be stored. Raises ConfigurationError if that takes too long."""
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + _PATIENCE_S
    while not middleware.serving:
        if loop.time() > give_up_s:
            raise ConfigurationError(
                "the grid does not answer: without it nothing is cached. Is MongoDB a replica set?"
            )
        await asyncio.sleep(_LOOK_AGAIN_S)


def questions(paths: Sequence[str], examples: Sequence[str]) -> tuple[list[str], list[str]]:
    """Paths to ask for, each once, and the templates for which there is no example.

    paths: paths of the GET routes; paths with parameters are templates.
    """
    plain = [path for path in paths if "{" not in path]
    missing = [path for path in paths if "{" in path and not any(map(_template(path).fullmatch, examples))]
    return list(dict.fromkeys([*plain, *examples])), missing


def check_examples(examples: Sequence[str]) -> None:
    """Check the values of `--path`. Raises ConfigurationError."""
    for example in examples:
        if not example.startswith("/"):
            raise ConfigurationError(f"--path {example!r} is no path: write /items/1")


async def _through(
    life: asyncio.Task[None], requests: asyncio.Queue[dict[str, Any]], said: asyncio.Queue[dict[str, Any]], what: str
) -> None:
    requests.put_nowait({"type": what})
    answer = asyncio.create_task(said.get())
    await asyncio.wait((life, answer), return_when=asyncio.FIRST_COMPLETED)
    if not answer.done():
        answer.cancel()
        error = None if life.cancelled() else life.exception()
        raise ConfigurationError(f"the app left its lifespan at {what}: {error or 'without a word'}")
    if answer.result()["type"] != f"{what}.complete":
        raise ConfigurationError(f"the app refused {what}: {answer.result().get('message', '')}")


def _template(path: str) -> re.Pattern[str]:
    pieces, end = [], 0
    for parameter in _PARAMETER.finditer(path):
        pieces += [re.escape(path[end : parameter.start()]), ".+" if parameter["any"] else "[^/?]+"]
        end = parameter.end()
    return re.compile("".join(pieces) + re.escape(path[end:]) + r"(\?.*)?")
