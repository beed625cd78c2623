"""Settings: each with its unit, default and bounds, in groups. `settings.store.memory_bytes` is one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from quaestor.settings.arguments import SettingsArguments
from quaestor.settings.continuous import ContinuousSettings, TableSettings
from quaestor.settings.environment import ENVIRONMENT_PREFIX, parsed, variable_of
from quaestor.settings.groups import (
    CdnSettings,
    GridSettings,
    LifetimeSettings,
    ObservabilitySettings,
    RealtimeSettings,
    SketchSettings,
    StoreSettings,
    VerificationSettings,
)
from quaestor.settings.whole import Settings, argument_names, is_tenant, setting_rows

__all__ = [
    "ENVIRONMENT_PREFIX",
    "CdnSettings",
    "ContinuousSettings",
    "GridSettings",
    "LifetimeSettings",
    "ObservabilitySettings",
    "RealtimeSettings",
    "Settings",
    "SettingsArguments",
    "SketchSettings",
    "StoreSettings",
    "TableSettings",
    "VerificationSettings",
    "argument_names",
    "is_tenant",
    "settings_in",
    "switched",
]

_SWITCHES = ("clock_parts", "enabled")
"""Settings whose variable wins over the program."""
_REDIS = "REDIS_URL"


def switched(settings: Settings, environment: Mapping[str, str]) -> Settings:
    """Return the settings with QUAESTOR_ENABLED and QUAESTOR_CLOCK_PARTS applied.

    Raises ConfigurationError for a value that is neither 0 nor 1.
    """
    table = setting_rows()
    values = {
        name: parsed(variable, environment[variable], table[name])
        for name, variable in ((name, variable_of(name)) for name in _SWITCHES)
        if variable in environment
    }
    return replace(settings, **values) if values else settings


def settings_in(environment: Mapping[str, str], passed: Collection[str] = ()) -> tuple[str, ...]:
    """Return the variables of an environment that `Settings.from_env` reads and `Quaestor()` does not, sorted.

    passed: names of the settings that the program passes. Passing `redis_url`, also as None, makes REDIS_URL the program's own
        matter. MONGO_URL is never among them, because `Quaestor()` watches the database of the app's clients.
    """
    variables = {variable_of(name) for name in setting_rows() if name not in _SWITCHES}
    if environment.get(_REDIS) and "redis_url" not in passed:
        variables.add(_REDIS)
    return tuple(sorted(variable for variable in variables if variable in environment))
