"""Channels on the dashboard: an overview for every viewer; pause, resume and dead letters for operators."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread

from quaestor.admin.request import Refused
from quaestor.clock import Clock
from quaestor.dashboard.folder_calls import change_of, named
from quaestor.observability.telemetry import Telemetry

if TYPE_CHECKING:
    from quaestor.channels.administration import Channels
    from quaestor.channels.overview import ChannelsOverview
    from quaestor.channels.running import RunningChannels
    from quaestor.settings.continuous import ContinuousSettings

CALLS: Final = {"/channels": "GET", "/channels/channel": "GET", "/channels/change": "POST"}
_NOTHING: Final[dict[str, Any]] = {"channels": None, "brokers": [], "feeds": [], "may_change": False}


def has_channels(settings: ContinuousSettings) -> bool:
    """Whether there is a folder, and channels are installed."""
    return bool(settings.continuous_folder) and find_spec("lark") is not None


def maker_of_channels(settings: ContinuousSettings, clock: Clock) -> Callable[[], Channels] | None:
    """Return the maker of the channels of the folder in the settings; their libraries are loaded at its first call.

    None: there is no folder, or channels are not installed.
    """
    if not has_channels(settings):
        return None

    @cache
    def channels() -> Channels:
        from quaestor.channels.administration import channels_of

        return channels_of(settings, clock=clock)

    return channels


def maker_of_running(
    channels: Callable[[], Channels] | None, settings: ContinuousSettings, telemetry: Telemetry
) -> Callable[[], RunningChannels] | None:
    """Return the maker of the delivery of channels; None: there are no channels."""
    if channels is None:
        return None

    def running() -> RunningChannels:
        from quaestor.channels.running import RunningChannels

        return RunningChannels(channels(), settings, telemetry)

    return running


class ChannelsView:
    """Channels of one folder, for the page. Use from one event loop.

    channels: returns the channels of the folder; None: there is no folder, or channels are not installed.
    running: returns what sends dead letters; None as `channels`.
    """

    def __init__(
        self, channels: Callable[[], Channels] | None, running: Callable[[], RunningChannels] | None, clock: Clock
    ) -> None:
        self._channels = channels
        self._running = running
        self._clock = clock
        self._lock = threading.Lock()
        self._overview: ChannelsOverview | None = None

    async def look(self, call: str, query: bytes, *, may_change: bool) -> dict[str, Any]:
        """Answer `/channels`, or `/channels/channel?name=`: the text, runs and dead letters of a channel.

        Raises Refused, ConfigurationError, DependencyError.
        """
        if call == "/channels":
            return await anyio.to_thread.run_sync(self._all, may_change)
        return await anyio.to_thread.run_sync(self._channel, named(query, "channel"))

    async def change(self, body: Any) -> dict[str, Any]:
        """Do {"do": "pause", "resume", "replay" or "discard", "name": ...}. Raises as `look` does; nothing has changed then.

        `replay` sends the dead letters of the channel again, `discard` drops them.
        """
        do, name = change_of(body, ("pause", "resume", "replay", "discard"))
        if do == "replay":
            running = await anyio.to_thread.run_sync(self._sender)
            done = await running.replay(name)
            return {"done": f"{done.delivered} messages delivered, {done.failed} failed"}
        return await anyio.to_thread.run_sync(self._change, do, name)

    def _all(self, may_change: bool) -> dict[str, Any]:
        if self._channels is None:
            return dict(_NOTHING)
        with self._lock:
            now_ms = self._clock()
            return {**self._opened().look(now=now_ms * 1_000), "may_change": may_change, "now_ms": now_ms}

    def _channel(self, name: str) -> dict[str, Any]:
        with self._lock:
            return self._opened().channel(name)

    def _change(self, do: str, name: str) -> dict[str, Any]:
        from quaestor.channels.statements.model import Kind, Pause, Resume

        if do == "discard":
            return {"done": f"{self._sender().discard(name)} messages dropped"}
        channels = self._open()
        kind = Pause if do == "pause" else Resume
        answer = channels.interpreter.execute(kind(kind=Kind.CHANNEL, name=name))
        return {"done": answer.text}

    def _sender(self) -> RunningChannels:
        self._open()
        assert self._running is not None, "there are channels"
        return self._running()

    def _opened(self) -> ChannelsOverview:
        """Return the overview; it remembers what it has read. Called under the lock."""
        if self._overview is None:
            from quaestor.channels.overview import ChannelsOverview

            self._overview = ChannelsOverview(self._open())
        return self._overview

    def _open(self) -> Channels:
        if self._channels is None:
            raise Refused(404, "There are no channels here: set continuous_folder, and install quaestor[channels].")
        return self._channels()
