"""Consistent cuts: all subscriptions of a socket advance together, to one cluster time after the other.

A record that is looked up after its update may be newer than the update. Results of such records take part in no cut.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final, NamedTuple, Protocol

from quaestor.live.websocket.outbox import Frame, Outbox, Queue, Rest
from quaestor.live.websocket.problems import ProtocolError
from quaestor.model import Version
from quaestor.realtime.notices import DeliveryMode

LOOK_EVERY_S: Final = 0.005


class Held(NamedTuple):
    """Message that waits for the cut that contains its writes.

    version: of the newest write that it may contain; None: the message is made when its turn comes, from the present result.
    """

    version: Version | None
    head: Frame
    rest: Rest
    queue: Queue
    generation: int


def refusal(delivery: DeliveryMode, bucket: str) -> ProtocolError | None:
    """Return the problem of a subscription with this delivery in a cut; None: it can take part."""
    if delivery is not DeliveryMode.STATE:
        return None
    return ProtocolError(
        422,
        f"cut: updates of {bucket} come without post-images; enable its changeStreamPreAndPostImages, or end the cut",
    )


class Advancing(Protocol):
    """Subscription, as a cut sees it."""

    @property
    def version(self) -> Version:
        """Version of the newest write that its result may contain."""

    @property
    def contained(self) -> Version | None:
        """Version up to which its result, and the messages so far, contain every write; None: not known now."""


class Cuts:
    """Cuts of one socket. Use from one event loop.

    announce: makes the message behind each cut.
    floor: version of the newest write that the client may have seen already. No cut is older.
    """

    def __init__(self, outbox: Outbox, announce: Callable[[Version], str], *, floor: Version) -> None:
        self._outbox = outbox
        self._announce = announce
        self._floor = floor
        self._held: dict[Advancing, deque[Held]] = {}
        self._arrived = asyncio.Event()

    def hold(self, subscription: Advancing, message: Held) -> None:
        """Keep a message until the cut that contains its writes."""
        self._held.setdefault(subscription, deque()).append(message)
        self._arrived.set()

    def forget(self, subscription: Advancing) -> None:
        """Drop the messages of a subscription that has ended."""
        self._held.pop(subscription, None)

    def seen(self, version: Version) -> None:
        """Note that the client may have seen the writes up to this version already."""
        self._floor = max(self._floor, version)

    def release(self, subscriptions: list[Advancing]) -> None:
        """Put out the messages of the newest cut, if it has any.

        subscriptions: of the socket.
        """
        known = [subscription.contained for subscription in subscriptions]
        if not known or None in known:
            return
        version = min(reached for reached in known if reached is not None)
        if version < self._floor:
            return
        due: list[Held] = []
        for subscription, held in self._held.items():
            while held and self._is_due(held[0], subscription, version):
                due.append(held.popleft())
        self._held = {subscription: held for subscription, held in self._held.items() if held}
        if self._put_out(due):
            self._floor = version
            self._outbox.put(self._announce(version))

    def end(self) -> None:
        """Put out everything that is held."""
        held, self._held = self._held, {}
        self._put_out(chain.from_iterable(held.values()))
        self._arrived.set()

    def _put_out(self, messages: Iterable[Held]) -> int:
        """Put the messages that were not dropped meanwhile into the outbox; return their number."""
        kept = [message for message in messages if message.generation == message.queue.generation]
        for message in kept:
            message.queue.waiting -= 1
            rest = message.rest
            if message.version is None and callable(rest):
                rest = rest()  # a result that is made later would be newer than the cut
            self._outbox.put(message.head, rest, queue=message.queue)
        return len(kept)

    async def waiting(self) -> None:
        """Return when a message is held, after a short rest."""
        if not self._held:
            self._arrived.clear()
            await self._arrived.wait()
        await asyncio.sleep(LOOK_EVERY_S)

    def _is_due(self, message: Held, subscription: Advancing, version: Version) -> bool:
        return (subscription.version if message.version is None else message.version) <= version
