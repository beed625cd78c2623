"""Checks of channels: whether a process runs them, late and failed runs, brokers that are down, dead letters, refused records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from quaestor.clock import Clock, system_clock
from quaestor.doctor.diagnosis import Diagnosis, mend, ok, warn
from quaestor.errors import QuaestorError
from quaestor.settings import Settings

SUBJECT: Final = "channels"
_DEFINITIONS: Final = "_definitions"
_RUN: Final = "quaestor channels run --listen HOST:PORT"


def examined(settings: Settings, *, clock: Clock = system_clock) -> list[Diagnosis]:
    """Return the diagnoses of the channels below `continuous_folder`; none, if there are no definitions."""
    folder = settings.continuous.continuous_folder
    if not folder or not Path(folder, _DEFINITIONS).exists():
        return []
    if find_spec("lark") is None:
        return [mend(SUBJECT, f"{folder} has channels, and they are not installed", "pip install 'quaestor[channels]'")]
    from quaestor.channels.administration import channels_of
    from quaestor.channels.hosting import is_hosted
    from quaestor.channels.overview import ChannelsOverview

    try:
        look = ChannelsOverview(channels_of(settings.continuous, clock=clock)).look(now=clock() * 1_000)
    except QuaestorError as error:
        return [mend(SUBJECT, f"{folder} cannot be read: {error}")]
    diagnoses = [] if is_hosted(Path(folder)) else _unhosted(look)
    diagnoses += [*map(_channel, look["channels"]), *_brokers(look["brokers"]), *map(_feed, look["feeds"])]
    faults = [diagnosis for diagnosis in diagnoses if diagnosis is not None]
    return faults or [ok(SUBJECT, f"{len(look['channels'])} channels and {len(look['feeds'])} feeds run in time")]


def _unhosted(look: Mapping[str, Sequence[Any]]) -> list[Diagnosis | None]:
    """Return the diagnosis of things that no process runs."""
    waiting = sum(entry["state"] in ("ready", "started") for kind in ("channels", "feeds") for entry in look[kind])
    return [mend(SUBJECT, f"{waiting} channels and feeds wait: no process runs them", _RUN)] if waiting else []


def _channel(channel: Mapping[str, Any]) -> Diagnosis | None:
    name = channel["name"]
    if channel["error"]:
        return mend(SUBJECT, f"{name}: the newest run failed: {channel['error']}", f"quaestor channels show {name}")
    if channel["late_s"] > 2 * channel["period_s"]:
        return mend(SUBJECT, f"{name}: a run is due since {channel['late_s']:.0f} s, every {channel['period_s']:g} s")
    if channel["dead_letters"]:
        count = channel["dead_letters"]
        return warn(SUBJECT, f"{name}: {count} messages were not confirmed", f"quaestor channels replay {name}")
    if channel["overruns"]:
        return warn(SUBJECT, f"{name}: {channel['overruns']} of {channel['runs']} runs took longer than the period")
    return None


def _brokers(brokers: Sequence[Mapping[str, Any]]) -> list[Diagnosis | None]:
    """Return a diagnosis for each broker that receives nothing at present."""
    silent = {entry["name"]: entry for entry in brokers if entry["state"].startswith(("down", "lease over"))}
    return [
        mend(SUBJECT, f"broker {name} at {entry['url']}: {entry['state']}; its results wait")
        for name, entry in silent.items()
    ]


def _feed(feed: Mapping[str, Any]) -> Diagnosis | None:
    if not feed["rejected"]:
        return None
    name = feed["name"]
    query = f"SELECT l.reason, count(*) AS n FROM {name}_dead_letters l GROUP BY l.reason"
    return warn(SUBJECT, f"feed {name}: {feed['rejected']} records were refused", f'quaestor sql -c "{query}"')
