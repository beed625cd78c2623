"""Command `quaestor audit`: asks an application's GET routes twice, in this process. Shows what each route reads, and what
is not covered and why."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quaestor.cli.plain_text import line
from quaestor.doctor.hosted_app import check_examples, load_app, middleware_of, questions, started, until_serving
from quaestor.read_path.verification import Finding

if TYPE_CHECKING:
    from quaestor.middleware.audit import Examined


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
    """Ask every GET route twice, and show what it reads and what is not covered. Exit status 1: some answers differed."""
    if mongo_url is not None:
        os.environ["MONGO_URL"] = mongo_url
    examples = path or []
    check_examples(examples)
    with redirect_stdout(sys.stderr):  # the app's own output and logs
        examined, missing = asyncio.run(_audited(load_app(app), examples))
    print(_json(examined, missing) if as_json else _text(examined, missing))
    raise typer.Exit(1 if any(examined_route.verdict is Finding.DIVERGED for examined_route in examined) else 0)


async def _audited(app: Any, examples: Sequence[str]) -> tuple[list[Examined], list[str]]:
    """Findings for every path that could be asked for, and the templates for which there is no example."""
    async with started(app):
        middleware = middleware_of(app)
        await until_serving(middleware)
        auditing = middleware.audit(app)
        urls, missing = questions(auditing.paths(), examples)
        return [await auditing.examine(url) for url in urls], missing


def _json(examined: Sequence[Examined], missing: Sequence[str]) -> str:
    return json.dumps({"routes": [asdict(route) for route in examined], "without_example": list(missing)})


def _text(examined: Sequence[Examined], missing: Sequence[str]) -> str:
    lines = []
    for route in examined:
        lines.append(f"{route.path}  ({route.route})")
        lines += [f"  reads        {read}" for read in route.reads]
        lines += [f"  not covered  {reason}" for reason in route.not_covered]
        match route.verdict:
            case Finding.SAME:
                lines.append("  asked twice  the same")
            case Finding.DIVERGED:
                lines.append(
                    f"  asked twice  DIVERGED: {', '.join(route.differs)}, though no write changed what it read"
                )
            case Finding.EXCUSED:
                lines.append("  asked twice  not certain: it differs, or a write came in between; ask again")
            case Finding.FAILED:
                lines.append("  asked twice  the second time it failed")
        if route.break_even is not None:
            lines.append(f"  pays         above a hit rate of about {route.break_even:.0%}")
    lines += [f"{path}  needs an example: --path ..." for path in missing]
    return "\n".join(map(line, lines))
