"""Settings: every value outside its bounds is refused with the value, the bound and the remedy; one table says all."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from typing import Any, get_type_hints

import pytest

from quaestor import settings as room
from quaestor.errors import ConfigurationError
from quaestor.settings import (
    CdnSettings,
    GridSettings,
    LifetimeSettings,
    RealtimeSettings,
    Settings,
    SettingsArguments,
    StoreSettings,
    settings_in,
)
from quaestor.settings.bounds import Row
from quaestor.settings.whole import GROUPS, group_of, setting_rows

ROWS = setting_rows()
NUMBERS = [name for name, row in ROWS.items() if row.kind in (int, float)]
EARLIER_UNCHECKED = (
    "memory_bytes", "max_body_bytes", "repurge_after_ms", "compress_above_bytes", "clock_window_ms", "ttl_max_ms",
    "subscription_lease_ms",
)  # fmt: skip
"""Settings whose negative values were accepted when each setting had a condition of its own."""
RELATED = frozenset(
    {
        "ttl_min_ms",
        "ttl_max_ms",
        "heartbeat_ms",
        "staleness_bound_ms",
        "subscription_lease_ms",
        "subscription_extend_ms",
    }
)
"""Settings whose bounds depend on another setting: see the test of contradictions."""


def wrong_values(row: Row) -> list[Any]:
    """Values that the row of a setting forbids."""
    if row.kind in (int, float):
        assert row.lowest is not None
        assert row.highest is not None
        outside: list[Any] = [row.lowest - 1, row.highest + 1, *row.excluded, math.nan, math.inf, -math.inf]
        return [*outside, True, False, "1", None, b"1", *([float(row.lowest) + 0.5] if row.kind is int else ())]
    if row.kind is bool:
        return [0, 1, "yes", None]
    if row.kind is tuple:
        return ["text", 5, None, (5,), *([("*",)] if row.form else ())]
    return [5, True, b"text", *(() if row.optional else (None,)), *(("unheard-of",) if row.choices else ())]


OF_A_FORM = {
    "webhook_networks": ("10.0.0.0/8", "fd00::/8"),
    "filled_tables": ("shop.orders", "items=shop.goods(_id:text price:double)"),
    "continuous_executor": "10GB",
}
"""Values of settings whose text has a form."""


def another_value(row: Row) -> Any:
    """An allowed value of a setting that is not its default."""
    if row.kind is bool:
        return not row.default
    if row.kind is int:
        return row.default + 1
    if row.kind is float:
        return row.default / 2 or 0.5
    if row.name in OF_A_FORM:
        return OF_A_FORM[row.name]
    return ("a", "b") if row.kind is tuple else row.choices[-1] if row.choices else "some.text"


@pytest.mark.parametrize("name", ROWS)
def test_a_value_outside_its_bounds_is_refused_with_name_value_and_remedy(name: str) -> None:
    """Below and above the bound, not a number, of another type, a bool for a number: one readable error each."""
    for value in wrong_values(ROWS[name]):
        with pytest.raises(ConfigurationError) as raised:
            Settings(**{name: value})
        message = str(raised.value)
        assert message.startswith(f"{name}={value!r} ")
        if name not in GROUPS:
            assert ROWS[name].values in message


@pytest.mark.parametrize("name", EARLIER_UNCHECKED)
def test_a_negative_size_or_time_is_refused(name: str) -> None:
    """The message names the bound."""
    with pytest.raises(
        ConfigurationError, match=rf"{name}=-1 is below the lowest value [01]: it must be a whole number of"
    ):
        Settings(**{name: -1})


@pytest.mark.parametrize("name", NUMBERS)
def test_the_bounds_themselves_and_the_default_are_allowed(name: str) -> None:
    """Bounds are inclusive, except the ones that the row excludes."""
    row, group = ROWS[name], GROUPS[group_of(name)]
    assert getattr(group(), name) == row.default
    for bound in {row.lowest, row.highest} - set(row.excluded) if name not in RELATED else ():
        assert getattr(group(**{name: bound}), name) == bound


@pytest.mark.parametrize(
    ("group", "values", "message"),
    [
        (LifetimeSettings, {"ttl_min_ms": 10, "ttl_max_ms": 9}, r"ttl_max_ms \(9\) is below ttl_min_ms \(10\)"),
        (GridSettings, {"heartbeat_ms": 51, "staleness_bound_ms": 100}, "at most half of staleness_bound_ms"),
        (
            RealtimeSettings,
            {"subscription_extend_ms": 41, "subscription_lease_ms": 120},
            "at most a third of subscription_lease_ms",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(group: type, values: dict[str, int], message: str) -> None:
    """In the group and through `Settings`."""
    for make in (group, Settings):
        with pytest.raises(ConfigurationError, match=message):
            make(**values)


def test_a_group_and_a_setting_by_its_name_make_the_same_settings() -> None:
    """`Settings(memory_bytes=...)` is the short form; a setting wins over its group, and keeps the group's others."""
    assert Settings(memory_bytes=5) == Settings(store=StoreSettings(memory_bytes=5))
    both = Settings(store=StoreSettings(memory_bytes=5, shared_bytes=6), memory_bytes=7)
    assert both.store == StoreSettings(memory_bytes=7, shared_bytes=6)
    assert not Settings(grid=False, heartbeat_ms=100).grid.enabled
    assert Settings(grid=False, heartbeat_ms=100).grid.heartbeat_ms == 100
    assert not Settings(verification=False).verification.enabled
    assert dataclasses.replace(both, tenant="a", cdn_canary_ms=0).cdn == CdnSettings(cdn_canary_ms=0)
    assert dataclasses.replace(both, tenant="a").store == both.store


def test_settings_are_immutable_values() -> None:
    """Settings cannot be changed, are equal by their contents, and go to other processes."""
    settings = Settings(ignored_fields=["user-agent"], tenant="a")  # type: ignore[typeddict-item]
    assert settings.store.ignored_fields == ("user-agent",)
    assert pickle.loads(pickle.dumps(settings)) == copy.deepcopy(settings) == settings
    assert hash(settings) == hash(copy.deepcopy(settings))
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.tenant = "b"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.store.memory_bytes = 1  # type: ignore[misc]


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    """In `Settings`, and for a group that is no group."""
    with pytest.raises(ConfigurationError, match="did you mean 'memory_bytes'"):
        Settings(memory_bites=1)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match=r"store=5 is of type int: give StoreSettings\(...\)"):
        Settings(store=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"cdn=True is of type bool: give CdnSettings\(...\)"):
        Settings(cdn=True)  # type: ignore[arg-type]


def test_an_attribute_of_the_time_before_groups_works_with_a_warning() -> None:
    """The warning names the new place; a group that was a switch remains one for another version."""
    settings: Any = Settings(memory_bytes=5, grid=False)
    with pytest.warns(DeprecationWarning, match=r"write settings\.store\.memory_bytes"):
        assert settings.memory_bytes == 5
    with pytest.warns(DeprecationWarning, match=r"write settings\.grid\.enabled"):
        assert not settings.grid
    with pytest.raises(AttributeError, match="'memory_bites'"):
        _ = settings.memory_bites


def test_the_environment_sets_each_setting_by_its_own_variable() -> None:
    """QUAESTOR_<NAME> sets a setting of any group; the program's arguments win, also as a group."""
    for name, row in ROWS.items():
        value = another_value(row)
        environment = {f"QUAESTOR_{name.upper()}": ", ".join(value) if row.kind is tuple else str(value)}
        settings = Settings.from_env(environment)
        holder = getattr(settings, group_of(name)) if group_of(name) else settings
        assert getattr(holder, "enabled" if name in GROUPS else name) == value
        assert settings_in(environment) == (() if name in ("enabled", "clock_parts") else tuple(environment))
    environment = {"QUAESTOR_MEMORY_BYTES": "5", "QUAESTOR_GRID": "0", "MONGO_URL": "mongodb://a", "PATH": "/bin"}
    settings = Settings.from_env(environment, shared_bytes=6)
    assert (settings.store.memory_bytes, settings.store.shared_bytes, settings.mongo_url) == (5, 6, "mongodb://a")
    assert not settings.grid.enabled
    assert Settings.from_env(environment, store=StoreSettings(shared_bytes=6)).store == StoreSettings(shared_bytes=6)


def test_an_unknown_variable_with_the_prefix_is_refused_with_the_nearest() -> None:
    """A misspelt variable would otherwise do nothing, unseen."""
    with pytest.raises(ConfigurationError, match="QUAESTOR_MEMORY_BITES; did you mean QUAESTOR_MEMORY_BYTES"):
        Settings.from_env({"QUAESTOR_MEMORY_BITES": "5"})
    with pytest.raises(ConfigurationError, match="QUAESTOR_XYZ; known: activation_deadline_ms, "):
        Settings.from_env({"QUAESTOR_XYZ": "5"})
    with pytest.raises(
        ConfigurationError, match="QUAESTOR_MEMORY_BYTES='5 MB': it must be a whole number of bytes from 0"
    ):
        Settings.from_env({"QUAESTOR_MEMORY_BYTES": "5 MB"})
    assert Settings.from_env({"QUAESTOR_ADMIN_TOKEN": "x" * 24}) == Settings()


def test_the_typed_arguments_are_the_tables() -> None:
    """A type checker and an editor know each setting and each group, with its type."""
    arguments = get_type_hints(SettingsArguments)
    assert set(arguments) == set(ROWS) | set(GROUPS)
    for name, table in GROUPS.items():
        types = get_type_hints(table)
        switch = types.pop("enabled", None)
        assert arguments[name] == (table | switch if switch else table)
        assert types.items() <= arguments.items()
    assert {name for name in ROWS if not group_of(name)} == {
        "mongo_url", "redis_url", "deployment", "tenant", "enabled",
    }  # fmt: skip


def test_each_row_has_a_sentence_and_each_group_is_public() -> None:
    """No setting without words; no group above 15 settings."""
    for name, row in ROWS.items():
        assert row.sentence.endswith(".")
        assert row.name == name
        assert row.kind not in (int, float) or (row.lowest is not None and row.highest is not None)
    for table in GROUPS.values():
        assert len(dataclasses.fields(table)) <= 15
        assert table.__name__ in room.__all__
