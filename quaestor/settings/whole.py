"""Settings of one Quaestor: its deployment, and the groups. Read once, when a Quaestor is made; never at import."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Unpack
from warnings import warn

from quaestor.argument_names import unknown_name
from quaestor.errors import ConfigurationError
from quaestor.settings.arguments import SettingsArguments
from quaestor.settings.bounds import Form, Row, check, optional_text, rows, switch, text
from quaestor.settings.continuous import ContinuousSettings, TableSettings
from quaestor.settings.environment import values_in
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

_LONGEST_TENANT = 64


def is_tenant(name: str) -> bool:
    """Whether a tenant may have this name: it becomes part of ids and of the names of pipelines."""
    return 0 < len(name) <= _LONGEST_TENANT and not any(character in name for character in "{}:~@ \t\n")


def _is_deployment(name: str) -> bool:
    return bool(name) and not any(character in name for character in "{}:@ \t\n")


_DEPLOYMENT = Form(description="a name without braces, colons, @ or spaces", fits=_is_deployment)
_TENANT = Form(
    description=f"a name of at most {_LONGEST_TENANT} characters, without braces, colons, ~, @ or spaces, or empty",
    fits=lambda name: not name or is_tenant(name),
)


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class Settings:
    """Settings of one Quaestor. The defaults suit one process on one MongoDB.

    Each group is an argument, and so is each setting: `Settings(memory_bytes=1_000_000)` is short for
    `Settings(store=StoreSettings(memory_bytes=1_000_000))`. A setting wins over the group that it belongs to. `grid=False` is
    short for `grid=GridSettings(enabled=False)`; so is `verification=False`. Raises ConfigurationError for a wrong value.
    """

    mongo_url: str | None = optional_text(
        "MongoDB whose change streams are read. None: the client that carries `capture` decides."
    )
    redis_url: str | None = optional_text(
        "Event layer, shared store and sketch: redis://host:port, or redis+cluster://host:port,host:port for a Redis "
        "Cluster (docs/cluster.md). None: everything is in this process."
    )
    deployment: str = text("default", "Name that separates deployments in one Redis.", _DEPLOYMENT)
    tenant: str = text(
        "", "Name of the app, on a grid that several apps share. Empty: the name of the deployment.", _TENANT
    )
    enabled: bool = switch(
        True,
        "Off: the middleware hands every request to the app, and nothing is started. The variable QUAESTOR_ENABLED wins "
        "over the program.",
    )
    store: StoreSettings = field(default_factory=StoreSettings)
    sketch: SketchSettings = field(default_factory=SketchSettings)
    lifetimes: LifetimeSettings = field(default_factory=LifetimeSettings)
    grid: GridSettings = field(default_factory=GridSettings)
    realtime: RealtimeSettings = field(default_factory=RealtimeSettings)
    verification: VerificationSettings = field(default_factory=VerificationSettings)
    cdn: CdnSettings = field(default_factory=CdnSettings)
    tables: TableSettings = field(default_factory=TableSettings)
    continuous: ContinuousSettings = field(default_factory=ContinuousSettings)
    observability: ObservabilitySettings = field(default_factory=ObservabilitySettings)

    def __init__(self, **values: Unpack[SettingsArguments]) -> None:
        arguments: dict[str, Any] = dict(values)
        check_names("Settings()", arguments)
        for name, group in GROUPS.items():
            object.__setattr__(self, name, _group(name, group, arguments))
        for name, row in rows(type(self)).items():
            object.__setattr__(self, name, arguments.get(name, row.default))
        check(self)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return a setting of a group by its name alone, as before there were groups; with a DeprecationWarning."""
            group = group_of(name)
            if not group or name in GROUPS:
                raise AttributeError(f"Settings has no attribute {name!r}")
            warn(f"settings.{name} has moved: write settings.{group}.{name}", DeprecationWarning, stacklevel=2)
            return getattr(getattr(self, group), name)

    @property
    def owner(self) -> str:
        """Name of the tenant, the deployment's if there is but one."""
        return self.tenant or self.deployment

    @property
    def scope(self) -> str:
        """Scope of an app's entries, index, sketch and labels, part of their names: no two tenants see each other's."""
        return self.deployment if self.owner == self.deployment else f"{self.deployment}@{self.tenant}"

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None, **overrides: Unpack[SettingsArguments]) -> Settings:
        """Settings from the environment: QUAESTOR_<NAME> for every setting, MONGO_URL and REDIS_URL besides; overrides win.

        Raises ConfigurationError for an unknown QUAESTOR_ variable, an unknown override, or a wrong value.
        """
        given: dict[str, Any] = dict(overrides)
        check_names("Quaestor()", given)
        values = values_in(os.environ if environment is None else environment, setting_rows())
        for name, group in GROUPS.items():
            if isinstance(given.get(name), group):
                for row in rows(group).values():
                    values.pop(row.name, None)
        return cls(**(values | given))


GROUPS: Mapping[str, type] = {
    "store": StoreSettings,
    "sketch": SketchSettings,
    "lifetimes": LifetimeSettings,
    "grid": GridSettings,
    "realtime": RealtimeSettings,
    "verification": VerificationSettings,
    "cdn": CdnSettings,
    "tables": TableSettings,
    "continuous": ContinuousSettings,
    "observability": ObservabilitySettings,
}
"""The classes of the groups, by the name of the argument."""


@cache
def setting_rows() -> Mapping[str, Row]:
    """The row of each setting, by the name of its argument."""
    return {row.name: row for row in chain(*(rows(table).values() for table in (Settings, *GROUPS.values())))}


@cache
def argument_names() -> frozenset[str]:
    """Names of the arguments that `Settings` and `Quaestor` take: settings and groups."""
    return frozenset((*setting_rows(), *GROUPS))


@cache
def group_of(name: str) -> str:
    """The group of a setting, by the name of its argument; empty for one of the deployment, and for an unknown name."""
    return next((group for group, table in GROUPS.items() if name in _names(table)), "")


def check_names(taker: str, names: Collection[str]) -> None:
    """Raises ConfigurationError for a name that no setting and no group has.

    taker: as a program writes the call, like `Quaestor()`.
    """
    known = argument_names()
    for name in names:
        if name not in known:
            raise ConfigurationError(unknown_name(taker, name, known))


def _names(table: type) -> Iterator[str]:
    return (row.name for row in rows(table).values())


def _group(name: str, group: type, arguments: dict[str, Any]) -> Any:
    """Return the group of one name: as passed, with the settings of the group that are passed beside it."""
    value = arguments.get(name)
    table = rows(group)
    passed = {
        attribute: arguments[row.name] for attribute, row in table.items() if row.name in arguments and row.name != name
    }
    if isinstance(value, group):
        return replace(value, **passed) if passed else value  # type: ignore[type-var]
    if name in arguments:
        if "enabled" not in table or not isinstance(value, bool):
            raise ConfigurationError(f"{name}={value!r} is of type {type(value).__name__}: give {group.__name__}(...)")
        passed["enabled"] = value
    return group(**passed)
