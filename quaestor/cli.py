"""The command `quaestor`. Each command's work is done in a module of its own; this file says how it is called.

Exit status: 0 done; 1 something did not hold; 2 a bad argument, or a part is missing: one sentence on stderr says which and
how to mend it.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from quaestor.errors import QuaestorError

app = typer.Typer(
    help="Exact invalidation of cached MongoDB query results.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _commands() -> None:
    """With a callback, a single command keeps its name."""


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
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Say how a query is treated: cached or not, matched exactly or widened, found by which index, and why."""
    from quaestor import explain_command

    text = explain_command.run(
        query, collection=collection, sort=sort, skip=skip, limit=limit, projection=projection, as_json=as_json
    )
    print(text)


def main(arguments: list[str] | None = None) -> None:
    """The console script. Exits; never shows a traceback for what was foreseen."""
    try:
        app(args=arguments, prog_name="quaestor")
    except QuaestorError as error:
        print(f"quaestor: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
