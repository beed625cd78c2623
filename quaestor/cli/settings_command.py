"""Command `quaestor settings`: shows each setting with its value, source, default, bounds, unit and sentence."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated

import typer

from quaestor.argument_names import unknown_name
from quaestor.cli.command_settings import command_settings
from quaestor.cli.plain_text import printable
from quaestor.errors import ConfigurationError

if TYPE_CHECKING:
    from quaestor.settings import Settings
    from quaestor.settings.sources import SettingInUse

_WIDTH = 120
_LONGEST_VALUE = 40


def settings(
    name: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Settings or groups: ttl_max_ms, store. Default: all.")
    ] = None,
    app: Annotated[
        str | None,
        typer.Option("--app", metavar="MODULE:APP", help="The settings of this ASGI app, or of this Quaestor."),
    ] = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only settings without their default.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Print each setting with its value, source (default, environment or argument), default, bounds and unit.

    Without --app: the settings of `Quaestor.from_env()` in this environment. The app is imported and not started.
    """
    from quaestor.settings.sources import Source, in_use

    environment: Mapping[str, str] = os.environ
    if app is None:
        values = command_settings()
    else:
        with redirect_stdout(sys.stderr):  # the app's own output
            values, environment = _settings_of(app)
    wanted = _wanted(in_use(values, environment), name or ())
    if changed:
        wanted = [setting for setting in wanted if setting.source is not Source.DEFAULT]
    if as_json:
        print(json.dumps({"settings": [setting.to_json() for setting in wanted]}))
    else:
        print(printable("\n".join(_lines(wanted))))


def _settings_of(app: str) -> tuple[Settings, Mapping[str, str]]:
    """Settings of an app or a Quaestor, and the variables that it reads."""
    from quaestor.app import Quaestor
    from quaestor.doctor.hosted_app import engine_of, load

    engine = engine_of(load(app))
    if not isinstance(engine, Quaestor):
        raise ConfigurationError(f"{app!r} has no Quaestor: name the object itself, as in shop.main:quaestor")
    ignored = engine.ignored_variables
    return engine.settings, {variable: text for variable, text in os.environ.items() if variable not in ignored}


def _wanted(in_use: Sequence[SettingInUse], names: Sequence[str]) -> list[SettingInUse]:
    """Settings of these names and groups; without a name, all of them. Raises ConfigurationError for an unknown name."""
    known = {name for setting in in_use for name in (setting.row.name, setting.group) if name}
    for name in names:
        if name not in known:
            raise ConfigurationError(unknown_name("quaestor settings", name, known))
    return [setting for setting in in_use if not names or setting.row.name in names or setting.group in names]


def _lines(wanted: Sequence[SettingInUse]) -> Iterator[str]:
    """Lines of the table: a heading for each group, a line for each setting, and below it the sentence with the allowed
    values."""
    width = max((len(setting.row.name) for setting in wanted), default=0)
    values = max((min(len(str(setting.value)), _LONGEST_VALUE) for setting in wanted), default=0)
    head = f"  {'setting':<{width}}  {'value':<{values}}  {'unit':<8}  {'source':<11}  default"
    group = None
    for setting in wanted:
        row = setting.row
        if setting.group != group:
            yield from ((head,) if group is None else ())
            group = setting.group
            yield f"{group or 'deployment'}"
        yield (
            f"  {row.name:<{width}}  {setting.value!s:<{values}}  {row.unit:<8}  {setting.source:<11}  {row.default}"
        ).rstrip()
        text = f"{row.values[:1].upper()}{row.values[1:]}. {row.sentence} [{setting.variable}]"
        yield from textwrap.wrap(
            text, width=_WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6, break_long_words=False
        )
