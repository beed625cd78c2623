"""Command `quaestor doctor`: the obstacles to caching here, and the command that removes each."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from quaestor.cli.command_settings import Deployment, LayerUrl, command_settings
from quaestor.cli.plain_text import printable

if TYPE_CHECKING:
    from quaestor.doctor.diagnosis import Diagnosis
    from quaestor.settings import Settings


def doctor(
    app: Annotated[
        str | None, typer.Option("--app", metavar="MODULE:APP", help="Start this ASGI app too, and ask its GET routes.")
    ] = None,
    path: Annotated[
        list[str] | None, typer.Option("--path", help="An example of a route with parameters: /items/1; repeatable.")
    ] = None,
    mongo_url: Annotated[
        str | None,
        typer.Option(envvar="MONGO_URL", help="The MongoDB to look at; an app that reads MONGO_URL gets it too."),
    ] = None,
    redis_url: LayerUrl = None,
    url: Annotated[
        list[str] | None,
        typer.Option(
            help="A live route (https://…) or an endpoint of live queries (wss://…), as clients reach it; repeatable. A stream "
            "or a WebSocket is opened. Without another argument only these are examined."
        ),
    ] = None,
    deployment: Deployment = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Show line by line what is right, what could be better, and what must be mended, each with the command for it.

    Nothing is changed. Exit status 1: something has to be mended.
    """
    from quaestor.doctor import diagnosis
    from quaestor.doctor.examination import examine
    from quaestor.doctor.hosted_app import check_examples

    only_urls = bool(url) and app is None and mongo_url is None and redis_url is None
    for name, value in (("MONGO_URL", mongo_url), ("REDIS_URL", redis_url)):
        if value is not None:
            os.environ[name] = value
    check_examples(path or [])
    _check_urls(url or [])
    settings, fault = _settings(mongo_url=mongo_url, redis_url=redis_url, deployment=deployment)
    if only_urls:
        report = _live(url or [], settings)
    else:
        with redirect_stdout(sys.stderr):  # the app's own output and logs
            examined = asyncio.run(examine(settings, app=app, examples=path or []))
        about_settings = [_fault(fault, app)] if fault else _sources(examined.settings, examined.ignored)
        report = [*about_settings, *examined.diagnoses, *_grid(examined.settings), *_live(url or [], examined.settings)]
    print(diagnosis.to_json(report) if as_json else printable(diagnosis.text(report)))
    raise typer.Exit(0 if diagnosis.healthy(report) else 1)


def _check_urls(urls: Sequence[str]) -> None:
    """Check the values of `--url`. Raises ConfigurationError."""
    from quaestor.errors import ConfigurationError

    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https", "ws", "wss") or not parts.netloc:
            raise ConfigurationError(f"--url {url!r}: write https://shop.example/shelves/7 or wss://shop.example/live")


def _live(urls: Sequence[str], settings: Settings) -> list[Diagnosis]:
    """Diagnoses of the ways from clients to live routes and live queries."""
    from quaestor.doctor.live_streams import LiveUrls

    return asyncio.run(LiveUrls(tuple(urls), settings.realtime.live_heartbeat_ms / 1000).examined())


def _settings(**given: str | None) -> tuple[Settings, str]:
    """Settings to examine, and the fault of the environment; with a fault, only the command's own arguments count."""
    from quaestor.errors import ConfigurationError
    from quaestor.settings import Settings

    try:
        return command_settings(**given), ""
    except ConfigurationError as error:
        arguments: Any = {name: value for name, value in given.items() if value is not None}
        return Settings(**arguments), str(error)


def _fault(fault: str, app: str | None) -> Diagnosis:
    """Diagnosis of a fault of the environment; an app that has started does not read it."""
    from quaestor.doctor.diagnosis import mend, warn

    if app is None:
        return mend("settings", f"{fault}. The rest is examined without the variables QUAESTOR_*")
    return warn("settings", f"{fault}. The app does not read it")


def _sources(settings: Settings, ignored: Sequence[str]) -> Iterator[Diagnosis]:
    """Diagnoses of the settings that differ from their default, and of variables that the app does not read."""
    from quaestor.doctor.diagnosis import ok, warn
    from quaestor.doctor.examination import FROM_ENV
    from quaestor.settings.sources import Source, in_use

    if ignored:
        sentence = f"{', '.join(ignored)}: set, and not read, because the app calls Quaestor()"
        yield warn("settings", sentence, FROM_ENV)
    environment = {variable: text for variable, text in os.environ.items() if variable not in ignored}
    changed = [
        f"{setting.row.name}={setting.value!r} ({setting.source})"
        for setting in in_use(settings, environment)
        if setting.source is not Source.DEFAULT
    ]
    yield ok("settings", f"{', '.join(changed) or 'all have their defaults'}; `quaestor settings` prints all")


def _grid(settings: Settings) -> list[Diagnosis]:
    """Diagnosis of a deployment's matching: which of the three modes it is in, and whether it keeps up."""
    from quaestor.cli.cluster_status import look
    from quaestor.clock import system_clock
    from quaestor.doctor.diagnosis import mend, ok
    from quaestor.errors import ConfigurationError, EventLayerError
    from quaestor.event_layer.connecting import event_layer
    from quaestor.invalidation.grid.election import MatchedBy, matching

    if not settings.grid.enabled:
        return []
    if settings.redis_url is None:
        return [ok("grid", "embedded: each app process runs the matching for itself")]
    run = f"quaestor grid --deployment {settings.deployment}"
    try:
        with closing(event_layer(settings.redis_url, settings.deployment)) as layer:
            status = look(layer, settings.deployment, now_ms=system_clock())
            matched = matching(layer, settings.deployment)
    except (ConfigurationError, EventLayerError) as error:
        return [mend("grid", f"could not be asked: {error}")]
    if matched.by is MatchedBy.NOBODY and settings.grid.elect_grid:
        return [
            ok("grid", "nobody runs the matching now; the first app process that starts is elected to run it for all")
        ]
    if status.shape is None or matched.by is MatchedBy.NOBODY:
        return [mend("grid", f"none runs in deployment {settings.deployment!r}: nothing is cached", run)]
    shape = f"{status.shape.query_partitions} x {status.shape.write_partitions} cells"
    where = f"elected: app process {matched.leader} runs" if matched.by is MatchedBy.ELECTED else "a grid runs"
    late = [cell for cell in status.cells if cell.lag_ms is None or cell.lag_ms > settings.grid.staleness_bound_ms]
    if late:
        sentence = (
            f"{where} {shape}; {len(late)} are silent or too far behind: what they guard is not served from cache"
        )
        return [mend("grid", sentence, f"quaestor cluster status --deployment {settings.deployment}", run)]
    return [ok("grid", f"{where} {shape}, all fresh")]
