"""Command `quaestor audit`: an application's GET routes are asked twice, in this process, and it is said what each read, what is
not covered and why."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, redirect_stdout
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quaestor.errors import ConfigurationError
from quaestor.read_path.verification import Finding
from quaestor.tasks import ended

if TYPE_CHECKING:
    from middleware import QuaestorMiddleware
    from middleware.audit import Examined

_DEEPEST = 64
_PATIENCE_S = 20.0
_LOOK_AGAIN_S = 0.05
_PARAMETER = re.compile(r"\{[^{}:]*(?P<any>:path)?[^{}]*\}")


def audit(
    app: Annotated[str, typer.Argument(metavar="MODULE:APP", help="The ASGI app, as a server is given it.")],
    path: Annotated[
        list[str] | None, typer.Option("--path", help="An example of a route with parameters: /items/1; repeatable.")
    ] = None,
    mongo_url: Annotated[
        str | None, typer.Option(envvar="MONGO_URL", help="MONGO_URL for an app that takes it from the environment.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Ask every GET route twice and say what it reads, and what is not covered. Exit status 1: some answers differed."""
    if mongo_url is not None:
        os.environ["MONGO_URL"] = mongo_url
    examples = path or []
    for example in examples:
        if not example.startswith("/"):
            raise ConfigurationError(f"--path {example!r} is no path: write /items/1")
    with redirect_stdout(sys.stderr):  # what the app prints and logs
        examined, missing = asyncio.run(_audited(_loaded(app), examples))
    print(_json(examined, missing) if as_json else _text(examined, missing))
    raise typer.Exit(1 if any(one.verdict is Finding.DIVERGED for one in examined) else 0)


def _loaded(name: str) -> Any:
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ConfigurationError(f"{name!r} names no app: write module:app, as for a server")
    sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"{name!r} cannot be loaded: {error}") from error
    if not callable(found):
        raise ConfigurationError(f"{name!r} is a {type(found).__name__} and no ASGI app")
    return found


async def _audited(app: Any, examples: Sequence[str]) -> tuple[list[Examined], list[str]]:
    """Every path that could be asked for as it was found, and the templates for which there is no example."""
    async with _started(app):
        middleware = _middleware_of(app)
        await _until_serving(middleware)
        auditing = middleware.audit(app)
        paths = auditing.paths()
        plain = [path for path in paths if "{" not in path]
        missing = [path for path in paths if "{" in path and not any(map(_template(path).fullmatch, examples))]
        asked = list(dict.fromkeys([*plain, *examples]))
        return [await auditing.examine(url) for url in asked], missing


@asynccontextmanager
async def _started(app: Any) -> AsyncIterator[None]:
    """The app between the start and the end of its lifespan."""
    asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
    life = asyncio.create_task(app(scope, asked.get, said.put))
    try:
        await _through(life, asked, said, "lifespan.startup")
        yield
        await _through(life, asked, said, "lifespan.shutdown")
    finally:
        await ended((life,))


async def _through(
    life: asyncio.Task[None], asked: asyncio.Queue[dict[str, Any]], said: asyncio.Queue[dict[str, Any]], what: str
) -> None:
    asked.put_nowait({"type": what})
    answer = asyncio.create_task(said.get())
    await asyncio.wait((life, answer), return_when=asyncio.FIRST_COMPLETED)
    if not answer.done():
        answer.cancel()
        error = None if life.cancelled() else life.exception()
        raise ConfigurationError(f"the app left its lifespan at {what}: {error or 'without a word'}")
    if answer.result()["type"] != f"{what}.complete":
        raise ConfigurationError(f"the app refused {what}: {answer.result().get('message', '')}")


def _middleware_of(app: Any) -> QuaestorMiddleware:
    from middleware import QuaestorMiddleware

    found = app
    for _ in range(_DEEPEST):
        if isinstance(found, QuaestorMiddleware):
            return found
        found = getattr(found, "middleware_stack", None) or getattr(found, "app", None) or getattr(found, "_app", None)
    raise ConfigurationError("the app has no QuaestorMiddleware: add it with app.add_middleware(...)")


async def _until_serving(middleware: QuaestorMiddleware) -> None:
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + _PATIENCE_S
    while not middleware.serving:
        if loop.time() > give_up_s:
            raise ConfigurationError(
                "the grid does not answer: without it nothing is cached. Is MongoDB a replica set?"
            )
        await asyncio.sleep(_LOOK_AGAIN_S)


def _template(path: str) -> re.Pattern[str]:
    pieces, end = [], 0
    for parameter in _PARAMETER.finditer(path):
        pieces += [re.escape(path[end : parameter.start()]), ".+" if parameter["any"] else "[^/?]+"]
        end = parameter.end()
    return re.compile("".join(pieces) + re.escape(path[end:]) + r"(\?.*)?")


def _json(examined: Sequence[Examined], missing: Sequence[str]) -> str:
    return json.dumps({"routes": [asdict(one) for one in examined], "without_example": list(missing)})


def _text(examined: Sequence[Examined], missing: Sequence[str]) -> str:
    lines = []
    for one in examined:
        lines.append(f"{one.path}  ({one.route})")
        lines += [f"  reads        {read}" for read in one.reads]
        lines += [f"  not covered  {reason}" for reason in one.not_covered]
        match one.verdict:
            case Finding.SAME:
                lines.append("  asked twice  the same")
            case Finding.DIVERGED:
                lines.append(f"  asked twice  DIVERGED: {', '.join(one.differs)}, though no write changed what it read")
            case Finding.EXCUSED:
                lines.append("  asked twice  not certain: it differs, or a write came in between; ask again")
            case Finding.FAILED:
                lines.append("  asked twice  the second time it failed")
    lines += [f"{path}  needs an example: --path ..." for path in missing]
    return "\n".join(lines)
