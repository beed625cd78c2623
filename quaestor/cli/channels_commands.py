"""Commands of `quaestor channels`: execute statements, list and show what they have created, subscribe."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from contextlib import redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quaestor.cli import extras
from quaestor.cli.command_settings import command_settings
from quaestor.cli.plain_text import printable
from quaestor.errors import ConfigurationError

if TYPE_CHECKING:
    from quaestor.channels.administration import Channels
    from quaestor.channels.answers import Answer
    from quaestor.channels.running import RunningChannels
    from quaestor.channels.statements import Statement
    from quaestor.settings.continuous import ContinuousSettings

commands = typer.Typer(
    pretty_exceptions_enable=False, no_args_is_help=True, help="Datasets, feeds, channels, brokers and subscriptions."
)
"""Commands of the group `quaestor channels`."""

Folder = Annotated[
    Path | None, typer.Option(help="Folder of the tables and channels; default: QUAESTOR_CONTINUOUS_FOLDER.")
]
User = Annotated[str, typer.Option(help="Owner of what is created; by default the operator.")]
Channel = Annotated[str, typer.Argument(metavar="CHANNEL", help="Name of a channel.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of a subscription.")]
Values = Annotated[
    list[str] | None, typer.Argument(metavar="VALUE...", help='Parameters as JSON: 7, "OC", {"x":1,"y":2}.')
]
Broker = Annotated[str, typer.Option("--on", help="Name of a broker.")]
Among = Annotated[
    list[str] | None,
    typer.Option(help="Broker that may take the subscription; may be repeated. Its values choose one with room."),
]


@commands.command("execute")
def execute(
    text: Annotated[
        str, typer.Argument(metavar="STATEMENTS", help="Statements; - reads them from the standard input.")
    ],
    value: Annotated[list[str] | None, typer.Option(help="Value of $NAME: NAME=JSON; may be repeated.")] = None,
    user: User = "",
    folder: Folder = None,
) -> None:
    """Execute statements in order: one JSON object a line, for each row or answer."""
    written = typer.get_text_stream("stdin").read() if text == "-" else text
    values = dict(_named(entry) for entry in value or ())
    for answer in _channels(folder).interpreter.run(written, user=user, values=values):
        _print(answer)


@commands.command("run")
def run(
    folder: Folder = None,
    listen: Annotated[
        str, typer.Option(help="HOST:PORT of feeds by HTTP and of pages of results; by default there is no server.")
    ] = "",
) -> None:
    """Run the channels and feeds of a folder until Ctrl-C, and deliver their results to the brokers."""
    running = _running(folder)
    work: Callable[[], Coroutine[Any, Any, None]] = running.keep_running
    if listen:
        extras.require("proxy", "--listen")
        from quaestor.cli.channel_server import address_of, served

        work = partial(served, running, *address_of(listen))
    with suppress(KeyboardInterrupt):
        asyncio.run(work())


@commands.command("list")
def list_things(
    what: Annotated[
        str,
        typer.Argument(
            help="brokers, channels, datasets, feeds, functions, procedures, runs, sharing, subscriptions or types."
        ),
    ] = "channels",
    channel: Annotated[str | None, typer.Option(help="Only subscriptions or runs of this channel.")] = None,
    folder: Folder = None,
) -> None:
    """List everything of one kind: one JSON object a line."""
    from quaestor.channels.showing import SHOWN
    from quaestor.channels.statements.model import Show

    if what not in SHOWN:
        raise ConfigurationError(f"there is no list of {what!r}; there are {', '.join(SHOWN)}")
    _execute(Show(what=what, channel=channel), folder)


@commands.command("show")
def show(name: Annotated[str, typer.Argument(metavar="NAME")], folder: Folder = None) -> None:
    """Show a channel, dataset, feed, broker or function: its text, state and uses."""
    from quaestor.channels.statements.model import Describe

    _execute(Describe(name=name), folder)


@commands.command("subscribe")
def subscribe(
    channel: Channel,
    on: Broker = "",
    among: Among = None,
    values: Values = None,
    user: User = "",
    folder: Folder = None,
) -> None:
    """Subscribe to a channel on a broker, or on one of several, and print the id of the subscription."""
    from quaestor.channels.statements.model import Subscribe

    if bool(on) == bool(among):
        raise typer.BadParameter("name a broker with --on, or several with --among")
    statement = Subscribe(
        channel=channel, values=tuple(map(_json, values or ())), broker=on, brokers=tuple(among or ())
    )
    _execute(statement, folder, user=user)


@commands.command("unsubscribe")
def unsubscribe(channel: Channel, subscription: Id, user: User = "", folder: Folder = None) -> None:
    """Remove a subscription."""
    from quaestor.channels.statements.model import Unsubscribe

    _execute(Unsubscribe(channel=channel, subscription=subscription), folder, user=user)


@commands.command("change")
def change(
    channel: Channel,
    subscription: Id,
    values: Values = None,
    to: Annotated[str | None, typer.Option(help="Name of another broker.")] = None,
    user: User = "",
    folder: Folder = None,
) -> None:
    """Give a subscription other parameters, or another broker, from the next run on."""
    from quaestor.channels.statements.model import ChangeSubscription

    if not values and to is None:
        raise ConfigurationError("nothing to change: write the parameters, or --to with a broker")
    parameters = tuple(map(_json, values)) if values else None
    statement = ChangeSubscription(channel=channel, subscription=subscription, values=parameters, broker=to)
    _execute(statement, folder, user=user)


@commands.command("move")
def move(
    source: Annotated[str, typer.Option("--from", help="Name of the broker that has the subscriptions.")],
    to: Annotated[str, typer.Option(help="Name of the broker that gets them.")],
    channel: Annotated[str | None, typer.Option(help="Only the subscriptions of this channel.")] = None,
    user: User = "",
    folder: Folder = None,
) -> None:
    """Give the subscriptions at a broker to another one, from the next run on: no result is lost, and none comes twice."""
    from quaestor.channels.statements.model import MoveSubscriptions

    _execute(MoveSubscriptions(source=source, target=to, channel=channel), folder, user=user)


@commands.command("balance")
def balance(
    channel: Channel,
    among: Annotated[
        list[str] | None,
        typer.Option(help="Broker that shares the load; may be repeated. By default all that have any."),
    ] = None,
    folder: Folder = None,
) -> None:
    """Move subscriptions between the brokers of a channel, until their results weigh about the same."""
    from quaestor.channels.statements.model import Balance

    _execute(Balance(channel=channel, brokers=tuple(among or ())), folder)


@commands.command("results")
def results(
    channel: Channel,
    subscription: Annotated[str | None, typer.Option(help="Only results of this subscription.")] = None,
    broker: Annotated[str | None, typer.Option(help="Only results of the subscriptions at this broker.")] = None,
    after: Annotated[int, typer.Option(min=0, help="Only runs after this one.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Results after which no further run begins.")] = 1_000,
    folder: Folder = None,
) -> None:
    """Print results of a channel, whole runs, the oldest first: one JSON object a line."""
    if subscription is not None and broker is not None:
        raise ConfigurationError("write --subscription or --broker, not both")
    catalogue = _channels(folder).parts.catalogue
    from quaestor.channels.brokers.reading import run_of
    from quaestor.channels.runs.stored_pages import StoredPages

    pages = StoredPages(catalogue)
    if subscription is not None:
        runs = pages.of_subscription(channel, subscription, after, limit)
    elif broker is not None:
        runs = pages.after(channel, broker, after, limit)
    else:
        runs = pages.all(channel, after, limit)
    for run in map(run_of, runs):
        for row in run["results"]:
            print(printable(json.dumps({"run": run["run"], "time": run["time"], **row}, ensure_ascii=False)))


@commands.command("pause")
def pause(channel: Channel, folder: Folder = None) -> None:
    """Stop the runs of a channel. Nothing is lost: its next run reads everything since its last one."""
    from quaestor.channels.statements.model import Kind, Pause

    _execute(Pause(kind=Kind.CHANNEL, name=channel), folder)


@commands.command("resume")
def resume(channel: Channel, folder: Folder = None) -> None:
    """Let a paused channel run again."""
    from quaestor.channels.statements.model import Kind, Resume

    _execute(Resume(kind=Kind.CHANNEL, name=channel), folder)


@commands.command("replay")
def replay(channel: Channel, folder: Folder = None) -> None:
    """Send the messages again that a broker did not confirm: each once, with its old key, to the present address.

    Exit status 1: some remain.
    """
    with redirect_stdout(sys.stderr):  # log events
        done = asyncio.run(_running(folder).replay(channel))
    print(json.dumps({"delivered": done.delivered, "failed": done.failed}))
    if done.failed:
        raise typer.Exit(1)


@commands.command("discard")
def discard(channel: Channel, folder: Folder = None) -> None:
    """Drop the messages that a broker did not confirm."""
    print(json.dumps({"dropped": _running(folder).discard(channel)}))


@commands.command("drop")
def drop(channel: Channel, folder: Folder = None) -> None:
    """Drop a channel with its subscriptions and results."""
    from quaestor.channels.statements.model import Drop, Kind

    _execute(Drop(kind=Kind.CHANNEL, name=channel), folder)


def sql(
    text: Annotated[str | None, typer.Option("-c", "--command", help="Execute these statements and end.")] = None,
    user: User = "",
    folder: Folder = None,
) -> None:
    """Prompt for statements and SELECTs over datasets. Ctrl-D ends it. Without a terminal, the standard input is executed."""
    channels = _channels(folder)
    from quaestor.cli.sql_prompt import Prompt

    prompt = Prompt(channels, user=user)
    if text is None and not sys.stdin.isatty():
        text = sys.stdin.read()
    if text is None:
        prompt.run()
    elif not prompt.execute(text):
        raise typer.Exit(1)


def _execute(statement: Statement, folder: Path | None, *, user: str = "") -> None:
    _print(_channels(folder).interpreter.execute(statement, user=user))


def _print(answer: Answer) -> None:
    from quaestor.continuous.delivery.batch import to_json

    for row in answer.rows:
        print(printable(to_json(dict(zip(answer.columns, row, strict=True)))))
    if answer.text:
        print(printable(answer.text))


def _named(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    return name, _json(value)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{text[:80]!r} is not JSON: write texts in double quotes, like '\"OC\"'") from error


def _channels(folder: Path | None) -> Channels:
    extras.require("channels", "channels")
    from quaestor.channels.administration import channels_of

    settings = _settings(folder)
    return channels_of(settings, query_limit_s=settings.continuous_limit_s)


def _running(folder: Path | None) -> RunningChannels:
    channels = _channels(folder)
    from quaestor.channels.running import RunningChannels
    from quaestor.observability.telemetry import Telemetry

    return RunningChannels(channels, _settings(folder), Telemetry())


def _settings(folder: Path | None) -> ContinuousSettings:
    return command_settings(continuous_folder=None if folder is None else str(folder)).continuous
