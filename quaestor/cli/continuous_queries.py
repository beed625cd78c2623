"""Commands of `quaestor continuous` on installed queries: install, change, show, run."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from quaestor.cli import extras
from quaestor.cli.command_settings import command_settings
from quaestor.cli.plain_text import line, printable

if TYPE_CHECKING:
    from quaestor.continuous.administration import Administration

commands = typer.Typer(pretty_exceptions_enable=False)
"""Commands that join the group `quaestor continuous`."""

_LOOK_S: Final = 1.0

Folder = Annotated[
    Path | None, typer.Option(help="Folder of the tables and queries; default: QUAESTOR_CONTINUOUS_FOLDER.")
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of an installed query.")]
Text = Annotated[
    str, typer.Argument(metavar="SQL", help="SELECT over the tables of the folder, as though they stood still.")
]
Every = Annotated[str, typer.Option(help="30s, 10m, 2h, 1d, 2w, PT10M or 'cron: 0 8 * * MON'.")]
Earlier = Annotated[
    str, typer.Argument(metavar="EARLIER", help="Column of the rows that come first, like messages.id.")
]
Later = Annotated[
    str, typer.Argument(metavar="LATER", help="Column of the rows that refer to them, like replies.message.")
]
To = Annotated[list[str] | None, typer.Option(help="A sink: https://..., mailto:..., file:NAME; may be repeated.")]
AtMost = Annotated[str | None, typer.Option(help="Longest interval under load, like 1h.")]
Start = Annotated[
    str, typer.Option("--from", metavar="START", help="beginning, now, or an instant like 2026-11-28T12:00:00Z.")
]


@commands.command("install")
def install(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Small letters, digits and _.")],
    text: Text,
    every: Every,
    start: Start = "now",
    to: To = None,
    at_most: AtMost = None,
    folder: Folder = None,
) -> None:
    """Install a query: from now on every result is published once, at its first run after the result became true."""
    administration = _administration(folder)
    from quaestor.continuous.installed import InstalledQuery

    query = InstalledQuery(name=name, text=text, every=every, sinks=tuple(to or ()), at_most=at_most or "")
    _print(administration.install(query, start))


@commands.command("install-all")
def install_all(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A query a line: an object with name, text, every.")],
    start: Start = "now",
    folder: Folder = None,
) -> None:
    """Install many queries in one step: all of them, or none. A line may also have sinks (a list) and at_most."""
    administration = _administration(folder)
    from quaestor.continuous.installed import queries_of

    with file.open("rb") as lines:
        _print({"installed": len(administration.install_all(queries_of(lines), start))})


@commands.command("set-text")
def set_text(name: Name, text: Text, start: Start = "now", folder: Folder = None) -> None:
    """Give a query another text: a new query with results of its own, from an instant on."""
    _print(_administration(folder).change_text(name, text, start))


@commands.command("dry-run")
def dry_run(
    text: Text,
    after: Annotated[str, typer.Option(help="Beginning of the interval, like 2026-11-01T00:00:00Z.")] = "beginning",
    upto: Annotated[str, typer.Option(help="End of the interval.")] = "now",
    folder: Folder = None,
) -> None:
    """Show the rows that a query would have delivered in a past interval, each with its instant: one JSON object a line."""
    for row in _administration(folder).dry_run(text, after, upto):
        _print(row)


@commands.command("run")
def run(folder: Folder = None) -> None:
    """Run the installed queries of a folder until Ctrl-C, and deliver their results."""
    administration = _administration(folder)
    from quaestor.continuous.hosting import hosted
    from quaestor.observability.telemetry import Telemetry

    with suppress(KeyboardInterrupt):
        asyncio.run(hosted(administration, Telemetry()))


@commands.command("list")
def list_queries(folder: Folder = None) -> None:
    """List the installed queries: name, state, period, sinks."""
    for query in _administration(folder).all():
        reason = f" ({query['reason']})" if query["reason"] else ""
        print(line(f"{query['name']}  {query['state']}{reason}  every {query['every']}  {' '.join(query['sinks'])}"))


@commands.command("show")
def show(name: Name, folder: Folder = None) -> None:
    """Show a query: text, state, progress, number of results, and what its sinks have confirmed."""
    _print(_administration(folder).show(name))


@commands.command("change")
def change(
    name: Name,
    every: Annotated[str | None, typer.Option(help="The new period.")] = None,
    to: To = None,
    at_most: AtMost = None,
    folder: Folder = None,
) -> None:
    """Change period, sinks or limit of a query, while it runs."""
    _print(_administration(folder).change(name, every=every, sinks=to, at_most=at_most))


@commands.command("pause")
def pause(name: Name, folder: Folder = None) -> None:
    """Stop the runs of a query. Nothing is lost: after `resume` its next run returns everything since its last one."""
    _print(_administration(folder).pause(name))


@commands.command("resume")
def resume(name: Name, folder: Folder = None) -> None:
    """Let a paused or quarantined query run again."""
    _print(_administration(folder).resume(name))


@commands.command("drop")
def drop(name: Name, folder: Folder = None) -> None:
    """Drop a query and its results."""
    _administration(folder).drop(name)


@commands.command("orders")
def orders(folder: Folder = None) -> None:
    """List the declared orders; a broken one with its first counterexample."""
    for declared in _administration(folder).orders():
        print(line(f"{declared['order']}  {declared['broken'] or 'holds'}"))


@commands.command("declare-order")
def declare_order(earlier: Earlier, later: Later, folder: Folder = None) -> None:
    """Declare that no row comes after a row that refers to it. Runs check it, and use it while it holds."""
    _print(_administration(folder).declare_order(earlier, later))


@commands.command("drop-order")
def drop_order(earlier: Earlier, later: Later, folder: Folder = None) -> None:
    """Forget a declared order. Installed queries go over to the exact rule with their next run."""
    _administration(folder).drop_order(earlier, later)


@commands.command("results")
def results(
    name: Name,
    after: Annotated[int, typer.Option(help="Show results after this position: `next` of the page before.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="Rows after which no further run is shown.")] = 1_000,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with new results until Ctrl-C.")] = False,
    folder: Folder = None,
) -> None:
    """Show published results, oldest first: one JSON object a line. The last line holds the position of the next page."""
    administration = _administration(folder)
    with suppress(KeyboardInterrupt):
        while True:
            page = administration.results(name, after=after, limit=limit)
            for row in page["rows"]:
                _print(row)
            if not follow:
                return _print({"next": page["next"], "complete": page["complete"]})
            sys.stdout.flush()
            after = page["next"]
            if page["complete"]:
                time.sleep(_LOOK_S)


def _administration(folder: Path | None) -> Administration:
    extras.require("continuous", "continuous queries")
    from quaestor.continuous.hosting import administration_of

    return administration_of(command_settings(continuous_folder=None if folder is None else str(folder)).continuous)


def _print(fields: dict[str, Any]) -> None:
    from quaestor.continuous.delivery.batch import to_json

    print(printable(to_json(fields)))
