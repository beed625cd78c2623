"""Commands of the group `quaestor tables`: list, show, fill, append, maintain and drop versioned tables."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quaestor.cli import extras
from quaestor.cli.command_settings import command_settings
from quaestor.cli.continuous_commands import folder_of
from quaestor.cli.plain_text import line, printable
from quaestor.errors import ConfigurationError

if TYPE_CHECKING:
    from quaestor.tables.catalogue import Catalogue

commands = typer.Typer(
    pretty_exceptions_enable=False, no_args_is_help=True, help="Append-only tables, for continuous queries."
)
"""Commands of the group `quaestor tables`."""

Folder = Annotated[Path | None, typer.Option(help="Folder of the tables; default: QUAESTOR_CONTINUOUS_FOLDER.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a table.")]


@commands.command("list")
def list_tables(folder: Folder = None) -> None:
    """List the tables: name, rows, files, newest instant."""
    catalogue = _catalogue(folder)
    for name in catalogue.names():
        shown = _described(catalogue, name)
        print(line(f"{name}  {shown['rows']} rows  {shown['files']} files  {shown['instant']}"))


@commands.command("show")
def show(
    name: Name,
    rows: Annotated[int, typer.Option(min=0, help="Number of the newest rows to show, one JSON object a line.")] = 0,
    folder: Folder = None,
) -> None:
    """Show a table: columns, key, rows, files, bytes, instants, progress of queries. With --rows also its newest rows."""
    catalogue = _catalogue(folder)
    _print(_described(catalogue, name))
    if rows:
        table = catalogue.open(name)
        snapshot = table.snapshot()
        after, counted = snapshot.instant, 0
        for file in reversed(table.files(snapshot, -1, snapshot.instant)):
            if counted >= rows:
                break
            after, counted = file.first - 1, counted + file.rows
        newest = table.scan(snapshot, after, snapshot.instant)
        for row in newest.sort_by("ts").slice(max(0, newest.num_rows - rows)).to_pylist():
            _print(row)


@commands.command("fill")
def fill(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE...",
            help="shop.orders, or orders=shop.orders(_id:text price:double); default: QUAESTOR_FILLED_TABLES.",
        ),
    ] = None,
    mongo_url: Annotated[str | None, typer.Option(envvar="MONGO_URL", help="MongoDB of the collections.")] = None,
    folder: Folder = None,
) -> None:
    """Fill tables from collections of MongoDB until Ctrl-C. Several such processes may fill one table."""
    catalogue = _catalogue(folder)
    settings = command_settings(mongo_url=mongo_url, filled_tables=tuple(tables) if tables else None)
    if settings.mongo_url is None:
        raise ConfigurationError("tables are filled from a MongoDB: pass --mongo-url, or set MONGO_URL")
    from pymongo import MongoClient

    from quaestor.observability.telemetry import Telemetry
    from quaestor.runtime.supervision.supervisor import Supervisor
    from quaestor.tables.filled import filled_tables
    from quaestor.tables.filling import Filling, FillingParts

    described = filled_tables(settings.tables.filled_tables)
    if not described:
        raise ConfigurationError("no collection is named: write `quaestor tables fill shop.orders`")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    telemetry = Telemetry()
    with MongoClient[Any](settings.mongo_url, appname="quaestor", datetime_conversion="DATETIME_AUTO") as client:
        parts = FillingParts(
            client=client,
            catalogue=catalogue,
            telemetry=telemetry,
            supervisor=Supervisor(telemetry),
            keep_days=settings.tables.table_days,
        )
        Filling(described, parts).run(stop)


@commands.command("append")
def append(
    name: Name,
    columns: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="NAME:TYPE", help="Makes the table if there is none; may be repeated."),
    ] = None,
    folder: Folder = None,
) -> None:
    """Append rows from the standard input, one JSON object a line, as one entry. Prints their instant."""
    catalogue = _catalogue(folder)
    from bson import json_util
    from bson.json_util import JSONOptions

    from quaestor.tables.filled import declared_schema

    if columns and name not in catalogue.names():
        catalogue.create(name, declared_schema(columns))
    table = catalogue.open(name)
    rows = []
    for number, text in enumerate(sys.stdin, 1):
        if text.strip():
            try:
                row = json_util.loads(text, json_options=JSONOptions(tz_aware=True))
            except (ValueError, TypeError) as error:
                raise ConfigurationError(f"line {number} is no JSON: {error}") from error
            if not isinstance(row, dict):
                raise ConfigurationError(f"line {number} is no object: {line(text.strip()[:100])}")
            rows.append(row)
    try:
        print(table.append(rows))
    except ValueError as error:
        raise ConfigurationError(f"nothing was appended: {error}") from error


@commands.command("maintain")
def maintain(
    name: Name,
    keep_days: Annotated[
        int, typer.Option(min=0, help="Days (UTC) for which rows are kept; versions still valid stay. 0: all rows.")
    ] = 0,
    folder: Folder = None,
) -> None:
    """Join small files of a table, drop old rows, delete files without readers, once."""
    catalogue = _catalogue(folder)
    from dataclasses import asdict

    from quaestor.clock import system_clock
    from quaestor.tables.retention import maintained

    _print(asdict(maintained(catalogue.open(name), keep_days=keep_days, now_ms=system_clock())))


@commands.command("drop")
def drop(name: Name, folder: Folder = None) -> None:
    """Drop a table and its rows. Results of a query go with the query: `quaestor continuous drop`."""
    if "." in name:
        raise ConfigurationError(f"{name!r} holds results of a query: use `quaestor continuous drop`")
    _catalogue(folder).drop(name)


def _catalogue(folder: Path | None) -> Catalogue:
    extras.require("continuous", "tables")
    from quaestor.tables.catalogue import Catalogue

    return Catalogue(folder_of(command_settings(continuous_folder=None if folder is None else str(folder))))


def _described(catalogue: Catalogue, name: str) -> dict[str, Any]:
    from quaestor.continuous.delivery.batch import moment

    table = catalogue.open(name)
    snapshot = table.snapshot()
    schema = table.schema(snapshot)
    return {
        "name": name,
        "columns": {column.name: column.type.value for column in schema.columns},
        "key": list(schema.key),
        "rows": sum(file.rows for file in snapshot.files.values()),
        "files": len(snapshot.files),
        "bytes": sum(file.bytes for file in snapshot.files.values()),
        "instant": moment(snapshot.instant),
        "progress": {query: moment(instant) for query, instant in snapshot.progress.items()},
    }


def _print(fields: dict[str, Any]) -> None:
    from quaestor.continuous.delivery.batch import to_json

    print(printable(to_json(fields)))
