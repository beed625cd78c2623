"""Command line `quaestor`. Each command's work is done in a module of its own; this module declares how commands are called.

Exit status: 0 done; 1 a check failed; 2 a bad argument, or a part is missing. One sentence on stderr then names the problem and
how to mend it.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from quaestor.cli import (
    admin_commands,
    audit_command,
    cdn_check_command,
    cdn_config_command,
    cdn_queue_commands,
    channels_commands,
    cluster_commands,
    continuous_commands,
    continuous_queries,
    dashboard_command,
    doctor_command,
    extras,
    monitoring_commands,
    settings_command,
    statistics_commands,
    tables_commands,
    ttl_commands,
)
from quaestor.cli.plain_text import printable
from quaestor.errors import ConfigurationError, QuaestorError

app = typer.Typer(
    help="Exact invalidation of cached MongoDB query results.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

cdn = typer.Typer(pretty_exceptions_enable=False, no_args_is_help=True, help="CDNs and their purges.")


def _print_version(wanted: bool) -> None:
    if wanted:
        try:
            print(f"quaestor {metadata.version('quaestor')}")
        except metadata.PackageNotFoundError as error:
            raise ConfigurationError("Quaestor is on the path and was not installed: pip install quaestor") from error
        raise typer.Exit


@app.callback()
def _commands(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of the command line as a whole."""


@app.command()
def demo(
    once: Annotated[bool, typer.Option("--once", help="Check the promises one by one: a JSON object a line.")] = False,
    day: Annotated[str, typer.Option(help="The day of 2013 that is replayed.")] = "2013-07-04",
    speed: Annotated[float, typer.Option(help="How many times as fast as the real day (at most 3600).")] = 60.0,
    port: Annotated[int, typer.Option(help="Port of the application's front; 0: any free one.")] = 0,
    live_port: Annotated[int, typer.Option(help="Port of the live page; 0: any free one.")] = 0,
    without_spark: Annotated[bool, typer.Option(help="Embedded: one worker, no Redis, no Java.")] = False,
    without_varnish: Annotated[bool, typer.Option(help="No Varnish before the app.")] = False,
) -> None:
    """Start everything on real data, with live writes and a live page; Ctrl-C stops it."""
    extras.require("demo", "the demo")
    if not without_spark:
        extras.require("spark", "the demo's grid", otherwise="; or go on with --without-spark")
    from quaestor.demo import command

    options = command.DemoOptions(
        day=day, speed=speed, port=port, live_port=live_port, spark=not without_spark, varnish=not without_varnish
    )
    raise typer.Exit(command.once(options) if once else command.demo(options))


@app.command()
def explain(
    query: Annotated[
        str, typer.Argument(metavar="FILTER", help="A find filter, or an aggregation pipeline: (extended) JSON.")
    ],
    collection: Annotated[str, typer.Option(help="database.collection")] = "test.collection",
    sort: Annotated[str | None, typer.Option(help='For example scheduled,-_id or {"at": -1, "_id": 1}')] = None,
    skip: Annotated[int, typer.Option(min=0)] = 0,
    limit: Annotated[int, typer.Option(min=0, help="0: none.")] = 0,
    projection: Annotated[str | None, typer.Option(help='For example {"name": 1}')] = None,
    text_index: Annotated[str | None, typer.Option(help="The text index as list_indexes gives it, for $text.")] = None,
    mongo_url: Annotated[
        str | None, typer.Option(help="Look the collection up there: view, collation, images, text index.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Say how a query is treated: cached or not, matched exactly or widened, found by which index, and why."""
    from quaestor.explain.text_query import TextQuery, explain_text

    text = explain_text(
        TextQuery(
            text=query,
            collection=collection,
            sort=sort,
            skip=skip,
            limit=limit,
            projection=projection,
            text_index=text_index,
        ),
        as_json=as_json,
        mongo_url=mongo_url,
    )
    print(printable(text))


@app.command()
def proxy(
    origin: Annotated[str, typer.Option(metavar="URL", help="The HTTP origin, like http://127.0.0.1:3000.")],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen.")] = "127.0.0.1:8080",
    mongo_url: Annotated[
        str | None, typer.Option(envvar="MONGO_URL", help="The origin's MongoDB. None: a plain HTTP cache.")
    ] = None,
    redis_url: Annotated[
        str | None, typer.Option(envvar="REDIS_URL", help="Share entries and the matching grid through this Redis.")
    ] = None,
    deployment: Annotated[str, typer.Option(help="Separates deployments that share one Redis.")] = "default",
    database: Annotated[
        str | None, typer.Option(help="The database of collections that the origin names without one.")
    ] = None,
    admin_token_file: Annotated[
        Path | None, typer.Option(help="Serve /quaestor/admin/ for holders of the token in this file.")
    ] = None,
    host_header: Annotated[
        str, typer.Option(help="preserve: the origin gets the client's Host; origin: its own.")
    ] = "preserve",
    host: Annotated[
        list[str] | None, typer.Option(help="Answer requests for this host only; may be repeated. Default: any.")
    ] = None,
    trust_forwarded: Annotated[
        bool,
        typer.Option("--trust-forwarded", help="Keep Forwarded and X-Forwarded-* of requests: behind own proxies."),
    ] = False,
    connect_timeout: Annotated[float, typer.Option(help="Seconds to reach the origin.")] = 5.0,
    read_timeout: Annotated[float, typer.Option(help="Seconds that the origin may be silent.")] = 60.0,
    body_ahead_kb: Annotated[
        int, typer.Option(min=0, help="Bytes of a request's body that must arrive before the origin is asked.")
    ] = 64,
    body_min_rate: Annotated[
        float, typer.Option(help="Bytes a second, the slowest that a client may send a body.")
    ] = 500.0,
    body_patience: Annotated[float, typer.Option(help="Seconds that a body may lag behind that rate.")] = 30.0,
    body_timeout: Annotated[float, typer.Option(help="Seconds that one body may be waited for in all.")] = 600.0,
    max_connections: Annotated[
        int, typer.Option(min=1, help="To the origin; half of them at most wait for the rest of a body.")
    ] = 256,
    origin_ca: Annotated[Path | None, typer.Option(help="PEM file to verify an https origin against.")] = None,
    memory_mb: Annotated[int, typer.Option(min=1, help="Budget of the cache in memory.")] = 64,
    max_body_kb: Annotated[int, typer.Option(min=1, help="Larger bodies are passed on, never stored.")] = 2048,
    certificate: Annotated[Path | None, typer.Option(help="PEM file: serve https.")] = None,
    key: Annotated[Path | None, typer.Option(help="PEM file of the certificate's key.")] = None,
    metrics: Annotated[bool, typer.Option("--metrics", help="Serve /quaestor/metrics to everybody.")] = False,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Serve /quaestor/dashboard/ for holders of the admin token.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show in X-Quaestor-Explain why an answer was stored.")
    ] = False,
) -> None:
    """Run the cache in front of any HTTP origin; Ctrl-C stops it."""
    extras.require("proxy", "the proxy")
    from quaestor.proxy import command

    command.run(
        command.ProxyCommand(
            origin=origin, listen=listen, mongo_url=mongo_url, redis_url=redis_url, deployment=deployment,
            database=database, admin_token_file=admin_token_file, host_header=host_header, hosts=tuple(host or ()),
            trust_forwarded=trust_forwarded, connect_timeout_s=connect_timeout, read_timeout_s=read_timeout,
            body_ahead_bytes=body_ahead_kb * 1024, body_min_bytes_per_s=body_min_rate, body_patience_s=body_patience,
            body_timeout_s=body_timeout,
            max_connections=max_connections, origin_ca=origin_ca, memory_bytes=memory_mb * 1024 * 1024,
            max_body_bytes=max_body_kb * 1024, certificate=certificate, key=key, metrics=metrics,
            dashboard=dashboard, debug=debug,
        )
    )  # fmt: skip


app.command()(audit_command.audit)
app.command()(dashboard_command.dashboard)
app.command()(doctor_command.doctor)
app.command()(cluster_commands.grid)
app.command()(admin_commands.invalidate)
app.command()(settings_command.settings)
app.command()(admin_commands.sketch)
app.command()(admin_commands.status)
app.add_typer(cluster_commands.commands, name="cluster")
continuous_commands.commands.add_typer(continuous_queries.commands)
app.add_typer(continuous_commands.commands, name="continuous")
app.add_typer(channels_commands.commands, name="channels")
app.command()(channels_commands.sql)
cdn.command()(cdn_check_command.check)
cdn.add_typer(cdn_queue_commands.commands, name="queue")
cdn.command()(cdn_config_command.config)
app.add_typer(cdn, name="cdn")
app.add_typer(monitoring_commands.commands, name="monitoring")
app.add_typer(statistics_commands.commands, name="statistics")
app.add_typer(tables_commands.commands, name="tables")
app.add_typer(ttl_commands.commands, name="ttl")


def main(arguments: list[str] | None = None) -> None:
    """Console script. Exits; never shows a traceback for an expected error."""
    try:
        app(args=arguments, prog_name="quaestor")
    except QuaestorError as error:
        print(printable(f"quaestor: {error}"), file=sys.stderr)
        sys.exit(2)
