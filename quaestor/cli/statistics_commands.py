"""Commands of the group `quaestor statistics`: run the job, show the newest windows, compact the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quaestor.cli import extras
from quaestor.cli.command_settings import Deployment, LayerUrl, command_settings
from quaestor.cli.plain_text import printable

commands = typer.Typer(
    pretty_exceptions_enable=False, no_args_is_help=True, help="Rates in windows, and the history of all writes."
)
"""Commands of the group `quaestor statistics`."""

Directory = Annotated[Path, typer.Option(help="Tables and checkpoints; on a file system that all executors share.")]
KeepDays = Annotated[int, typer.Option(min=0, help="Days of history that are kept; 0: all.")]
Lengths = Annotated[str, typer.Option("--windows", metavar="SECONDS", help="Lengths of the windows.")]


@commands.command("run")
def run(
    directory: Directory,
    windows: Lengths = "10,60",
    redis_url: LayerUrl = None,
    deployment: Deployment = None,
    master: Annotated[str | None, typer.Option(help="Spark's master; default: local[2].")] = None,
    trigger: Annotated[float, typer.Option(help="Seconds from batch to batch.")] = 5.0,
    lateness: Annotated[int, typer.Option(min=0, help="A window is final so many seconds after its end.")] = 10,
    keep_days: KeepDays = 30,
) -> None:
    """Run the statistics job until Ctrl-C. The job goes on where it stopped, however it ended.

    QUAESTOR_FILLED_TABLES names collections of MONGO_URL that it also fills tables from, below QUAESTOR_CONTINUOUS_FOLDER.
    """
    extras.require("spark", "the statistics job")
    from quaestor.statistics import command

    settings = command_settings(redis_url=redis_url, deployment=deployment)
    options = command.options(
        settings, directory, windows_s=windows, trigger_s=trigger, lateness_s=lateness, keep_days=keep_days
    )
    command.run(options, master=master, settings=settings)


@commands.command("show")
def show(
    windows: Lengths = "10,60",
    redis_url: LayerUrl = None,
    deployment: Deployment = None,
    as_json: Annotated[bool, typer.Option("--json", help="All windows that are kept, as JSON on one line.")] = False,
) -> None:
    """Show the newest windows: the rates of writes, matches and reads."""
    from quaestor.statistics import command, reader

    settings = command_settings(redis_url=redis_url, deployment=deployment)
    output = reader.show(
        command.redis_url(settings), settings.deployment, command.lengths(windows), as_json=as_json
    )  # fmt: skip
    print(printable(output))


@commands.command("compact")
def compact(directory: Directory, keep_days: KeepDays = 30) -> None:
    """Merge small files into larger ones, and remove old files, once. A running job does this by itself."""
    extras.require("spark", "compaction")
    from quaestor.statistics import command

    print(command.compact(directory, keep_days=keep_days))
