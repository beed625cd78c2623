"""Command `quaestor dashboard`: the dashboard before a deployment, or on a recorded trace alone."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from quaestor.cli import extras
from quaestor.cli.command_settings import Deployment, LayerUrl, command_settings
from quaestor.errors import ConfigurationError


def dashboard(
    trace: Annotated[
        str,
        typer.Option(
            help="Trace recorded with trace_file; `*` for any part of its name: the largest of the last day is taken."
        ),
    ] = "",
    redis_url: LayerUrl = None,
    deployment: Deployment = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen.")] = "127.0.0.1:8090",
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the token; default: $QUAESTOR_ADMIN_TOKEN, or a new one, which is printed."),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Nothing can be applied.")] = False,
) -> None:
    """Serve the dashboard: the figures that the app's processes report through Redis, and parameters tried on a trace; Ctrl-C
    stops the dashboard."""
    extras.require("proxy", "the dashboard's server")
    from quaestor.admin.token import VARIABLE, AdminToken
    from quaestor.dashboard import standalone

    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise ConfigurationError(f"--listen is HOST:PORT, like 127.0.0.1:8090, not {listen!r}")
    try:
        token = AdminToken.load(token_file)
    except ConfigurationError as error:
        if token_file is not None or VARIABLE not in str(error) or "no admin token" not in str(error):
            raise
        made = secrets.token_urlsafe(32)
        token = AdminToken(made)
        print(f"token: {made}", flush=True)
    settings = command_settings(redis_url=redis_url, deployment=deployment)
    app = standalone.application(settings, token=token, traces=trace, read_only=read_only)
    print(f"http://{listen}/quaestor/dashboard/", flush=True)
    standalone.serve(app, standalone.Listen(host=host.strip("[]"), port=int(port)))
