"""Command `quaestor cdn check`: whether purges of a CDN have an effect, and whether its limits suffice."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import redirect_stdout
from typing import Annotated

import typer

from quaestor.cli.plain_text import line


def check(
    name: Annotated[str, typer.Argument(help="The CDN, as its adapter is called: varnish.")],
    app: Annotated[str, typer.Option("--app", metavar="MODULE:APP", help="The ASGI app that purges it.")],
    address: Annotated[
        str | None, typer.Option(metavar="URL", help="Where clients ask it; default: the app's cdn_addresses.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Read a tagged answer through the CDN, purge it with the app's own credentials, and read it again.

    The application must be running behind the CDN; here it is started once more, for its settings. The command also checks the
    CDN's limits against the invalidations of the last hour, its bounds for the lifetimes, and its field for the tags. Clocks are
    checked too. Exit status 1: one of the findings is `block`.
    """
    from quaestor.doctor.cdn_check import check_cdn

    with redirect_stdout(sys.stderr):  # the app's own output and logs
        outcome = asyncio.run(check_cdn(app, name, address=address))
    if as_json:
        findings = [{"level": finding.level, "sentence": finding.sentence} for finding in outcome]
        print(json.dumps({"cdn": name, **findings[0], "findings": findings}))
    else:
        for finding in outcome:
            print(line(f"{finding.level:<5}  {name}: {finding.sentence}"))
    raise typer.Exit(1 if outcome[0].level == "block" else 0)
