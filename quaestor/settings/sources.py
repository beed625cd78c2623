"""Sources of settings: for each setting its value and where the value comes from, without passwords."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from quaestor.settings.bounds import Row, rows
from quaestor.settings.environment import PLAIN, values_in, variable_of
from quaestor.settings.whole import GROUPS, Settings, setting_rows

_PASSWORD = re.compile(r"(?<=://)([^:/?#@]*):[^?#]*@")
_HIDDEN: Final = frozenset({"webhook_key"})
"""Settings that are secrets as a whole."""
_SECRET = re.compile(r"([?&;][^=&;]*(?:password|passwd|secret|token|properties)[^=&;]*=)[^&;#]*", re.IGNORECASE)


class Source(StrEnum):
    """Sources of a value."""

    DEFAULT = "default"
    ENVIRONMENT = "environment"
    ARGUMENT = "argument"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingInUse:
    """One setting of a program.

    group: empty for a setting of the deployment.
    value: in effect; keys, and passwords in URLs, are hidden.
    variable: of the environment, that sets it.
    """

    row: Row
    group: str
    value: Any
    source: Source
    variable: str

    def to_json(self) -> dict[str, Any]:
        """The setting as a JSON object."""
        row = self.row
        return {
            "name": row.name,
            "group": self.group or None,
            "value": self.value,
            "source": self.source,
            "default": row.default,
            "variable": self.variable,
            "type": {str: "text", tuple: "texts", bool: "switch", int: "whole number", float: "number"}[row.kind],
            "unit": row.unit or None,
            "lowest": row.lowest,
            "highest": row.highest,
            "excluded": list(row.excluded),
            "choices": list(row.choices),
            "sentence": row.sentence,
        }


def in_use(settings: Settings, environment: Mapping[str, str]) -> tuple[SettingInUse, ...]:
    """Return all settings, group by group, with the source of each.

    environment: the variables that the program reads. A value that equals its variable's counts as the environment's.
    Raises ConfigurationError for variables that `Settings.from_env` refuses.
    """
    variables = values_in(environment, setting_rows())
    settings_in_use = []
    for group, table in {"": Settings, **GROUPS}.items():
        holder = getattr(settings, group) if group else settings
        for attribute, row in rows(table).items():
            value = getattr(holder, attribute)
            if row.name in variables:
                source = Source.ENVIRONMENT if variables[row.name] == value else Source.ARGUMENT
            else:
                source = Source.DEFAULT if value == row.default else Source.ARGUMENT
            variable = variable_of(row.name)
            plain = row.name.upper()
            if plain in PLAIN and plain in environment and variable not in environment:
                variable = plain
            settings_in_use.append(
                SettingInUse(row=row, group=group, value=_shown(value, row.name), source=source, variable=variable)
            )
    return tuple(settings_in_use)


def _shown(value: Any, name: str) -> Any:
    """Return the value without secrets: passwords of URLs are hidden, and so is a key."""
    if isinstance(value, tuple):
        return tuple(_shown(part, name) for part in value)
    if name in _HIDDEN and value:
        return "***"
    return _SECRET.sub(r"\1***", _PASSWORD.sub(r"\1:***@", value)) if isinstance(value, str) else value
