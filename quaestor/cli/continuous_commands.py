"""Commands of the group `quaestor continuous`: explain a query, try a sink, list dead letters, send them again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quaestor.cli import extras
from quaestor.cli.command_settings import command_settings
from quaestor.cli.plain_text import line
from quaestor.errors import ConfigurationError

if TYPE_CHECKING:
    from quaestor.continuous.delivery.dead_letters import DeadLetters
    from quaestor.settings import Settings

commands = typer.Typer(
    pretty_exceptions_enable=False, no_args_is_help=True, help="Continuous queries, and the delivery of their results."
)
"""Commands of the group `quaestor continuous`."""

Folder = Annotated[
    Path | None, typer.Option(help="Folder of the tables and queries; default: QUAESTOR_CONTINUOUS_FOLDER.")
]
Query = Annotated[str | None, typer.Option(help="Name of an installed query; default: all.")]


@commands.command("try-sink")
def try_sink(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="https://..., mailto:... or file:NAME.")],
) -> None:
    """Deliver one example row to a sink, with the settings of QUAESTOR_* in the environment."""
    extras.require("continuous", "delivery")
    from quaestor.continuous.delivery.addresses import sink_of
    from quaestor.continuous.delivery.batch import ResultBatch

    instant = time.time_ns() // 1_000
    batch = ResultBatch(query="example", run=instant, instant=instant, rows=[{"text": "an example"}])
    asyncio.run(sink_of(address, command_settings().continuous).deliver(batch))
    print(f"{line(address)} has the row {batch.key}")


@commands.command("dead-letters")
def dead_letters(
    folder: Folder = None,
    query: Query = None,
    drop: Annotated[bool, typer.Option("--drop", help="Drop the listed batches for good.")] = False,
) -> None:
    """List the batches that a sink refused for good, with the reason."""
    extras.require("continuous", "delivery")
    from quaestor.continuous.delivery.sink import shown

    letters = _letters(_settings(folder))
    for letter in letters.list(query):
        print(
            line(
                f"{letter.batch.key}  {len(letter.batch.rows)} rows  {shown(letter.sink)}  {letter.reason}: {letter.error}"
            )
        )
        if drop:
            letters.remove(letter)


@commands.command("replay")
def replay(folder: Folder = None, query: Query = None) -> None:
    """Send the dead letters again, each once and with its old keys. Exit status 1: some remain."""
    extras.require("continuous", "delivery")
    from quaestor.continuous.delivery.courier import Courier
    from quaestor.continuous.functions import reachable_sink
    from quaestor.observability.telemetry import Telemetry

    settings = _settings(folder)
    courier = Courier(_letters(settings), Telemetry(), attempts=settings.continuous.delivery_attempts)
    replayed = asyncio.run(courier.replay(lambda address: reachable_sink(address, settings.continuous), query))
    asked = f", {replayed.asked} asked of the application with their functions" if replayed.asked else ""
    print(f"{replayed.delivered} delivered, {replayed.failed} failed{asked}")
    if replayed.failed:
        raise typer.Exit(1)


@commands.command("explain")
def explain(
    text: Annotated[str, typer.Argument(metavar="SQL", help="Text of a continuous query.")],
    folder: Folder = None,
    dialect: Annotated[str, typer.Option(help="SQL dialect of the text, as sqlglot names it.")] = "duckdb",
) -> None:
    """Print a query's standard form, monotone query and incremental query, and its meaning over time."""
    extras.require("continuous", "queries")
    from quaestor.continuous.compilation import compile_query
    from quaestor.continuous.declared_orders import holding_orders
    from quaestor.continuous.reach import columns_read, reaches
    from quaestor.tables.catalogue import Catalogue

    catalogue = Catalogue(folder_of(_settings(folder)))
    schemas = catalogue.schemas()
    compiled = compile_query(text, schemas, dialect=dialect, orders=holding_orders(catalogue, schemas))
    print(compiled.explanation)
    for name, reach in sorted(reaches(compiled.incremental).items()):
        columns = ", ".join(columns_read(compiled.incremental, schemas[name])) or "no column"
        print(f"A run reads of {name}: {reach}; {columns}.")
    if compiled.may_repeat:
        print("A run also reads the earlier results that may equal its own.")
    texts = {"standard form": compiled.standard, "monotone": compiled.monotone, "incremental": compiled.incremental}
    for name, query in texts.items():
        print(f"\n-- {name}\n{query.sql('duckdb', pretty=True)}")


def _settings(folder: Path | None) -> Settings:
    return command_settings(continuous_folder=None if folder is None else str(folder))


def _letters(settings: Settings) -> DeadLetters:
    from quaestor.continuous.delivery.dead_letters import DeadLetters
    from quaestor.tables.storage import FolderStorage

    return DeadLetters(FolderStorage(folder_of(settings)))


def folder_of(settings: Settings) -> Path:
    """Return the folder of tables and queries. Raises ConfigurationError if no setting names it."""
    folder = settings.continuous.continuous_folder
    if not folder:
        raise ConfigurationError("no folder of continuous queries: pass --folder, or set QUAESTOR_CONTINUOUS_FOLDER")
    return Path(folder)
