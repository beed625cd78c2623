"""Settings in the environment: QUAESTOR_<NAME> for each setting, MONGO_URL and REDIS_URL besides."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from quaestor.errors import ConfigurationError
from quaestor.settings.bounds import Row

ENVIRONMENT_PREFIX = "QUAESTOR_"
_OF_OTHERS = frozenset({"QUAESTOR_ADMIN_TOKEN", "QUAESTOR_ADMIN_URL"})
"""Variables with the prefix that are no settings: see `quaestor.admin`."""
PLAIN = ("MONGO_URL", "REDIS_URL")
"""Variables without the prefix."""
_SWITCHES = {"1": True, "true": True, "0": False, "false": False}


def variable_of(name: str) -> str:
    """The variable that sets a setting."""
    return f"{ENVIRONMENT_PREFIX}{name.upper()}"


def values_in(environment: Mapping[str, str], table: Mapping[str, Row]) -> dict[str, Any]:
    """Return the values that variables set, by the name of the setting.

    Raises ConfigurationError for an unknown variable with the prefix, and for a text that is no value of the setting.
    """
    settings = {variable_of(name): name for name in table}
    values: dict[str, Any] = {plain.lower(): environment[plain] for plain in PLAIN if plain in environment}
    for variable, text in environment.items():
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in _OF_OTHERS:
            name = settings.get(variable)
            if name is None:
                raise ConfigurationError(_unknown(variable, table))
            values[name] = parsed(variable, text, table[name])
    return values


def parsed(variable: str, text: str, row: Row) -> Any:
    """Return the value that a variable's text stands for. Raises ConfigurationError if it stands for none."""
    try:
        if row.kind is bool:
            return _SWITCHES[text.lower()]
        if row.kind in (int, float):
            return row.kind(text)
    except (ValueError, KeyError) as error:
        values = "1, true, 0 or false" if row.kind is bool else row.values
        raise ConfigurationError(f"{variable}={text!r}: it must be {values}") from error
    return tuple(part.strip() for part in text.split(",") if part.strip()) if row.kind is tuple else text


def _unknown(variable: str, names: Collection[str]) -> str:
    """Return the sentence about an unknown variable: it names the nearest, or all settings."""
    nearest = get_close_matches(variable.removeprefix(ENVIRONMENT_PREFIX).lower(), names, n=1)
    remedy = f"did you mean {variable_of(nearest[0])}?" if nearest else f"known: {', '.join(sorted(names))}"
    return f"unknown setting {variable}; {remedy}"
