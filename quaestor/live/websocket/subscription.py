"""Subscription of one socket to one query."""

from __future__ import annotations

import json
from typing import Any, Final, Protocol

from quaestor.clock import Clock
from quaestor.live.websocket.events import EventShape, SharedMatch, date_text
from quaestor.live.websocket.group import QueryGroup
from quaestor.live.websocket.outbox import Outbox, Queue
from quaestor.live.websocket.problems import ProtocolError
from quaestor.live.websocket.requests import Subscribe
from quaestor.realtime.notices import DeliveryChanged, Notice, Resumed, Resynchronized, Stalled

SLOW: Final = "slow"
"""Reason of a `refreshed`: more events waited for the client than one subscription may leave unsent."""


class Socket(Protocol):
    """Part of a socket that its subscriptions need."""

    @property
    def outbox(self) -> Outbox:
        """Its unsent messages."""

    def ended(self, subscription: SocketSubscription) -> None:
        """Forget a subscription that has ended."""


class SocketSubscription:
    """Subscription of one socket to one query. It is a `Member` of the group of the query.

    request: the message that began it.
    """

    def __init__(self, socket: Socket, request: Subscribe, *, shape: EventShape, waiting: int, clock: Clock) -> None:
        self.request = request
        self.group: QueryGroup | None = None
        self._socket = socket
        self._outbox = socket.outbox
        self._shape = shape
        self._most_waiting = waiting
        self._clock = clock
        self._queue = Queue()
        self._prefix = f'{{"id":{json.dumps(request.id)},'
        self._behind = False

    # Beginning and end

    def begin(self, group: QueryGroup) -> str:
        """Join the group. The client receives the result, or the events behind its `offset_token`.

        Return how it began, one of vocabularies.LIVE_BEGINNINGS.
        """
        self.group = group
        token = self.request.offset_token
        missed = None if token is None else group.missed(token)
        group.join(self)
        if missed is not None:
            self._say("resumed", missed=len(missed), offset_token=token)
            for match in missed:
                self.offer(match)
            return "resumed"
        if token is not None:
            self._say("refreshed", reason="the events behind the token are not kept any more")
        self._put_result()
        return "new" if token is None else "refreshed"

    def move(self, group: QueryGroup, *, reason: str) -> None:
        """Go on in another group. The client receives the result anew.

        reason: for the client.
        """
        self.leave()
        self._queue.drop()
        self.group = group
        group.join(self)
        self._say("refreshed", reason=reason)
        self._put_result()

    def leave(self) -> None:
        """Leave the group without a word to the client."""
        if self.group is not None:
            self.group.leave(self)
            self.group = None

    # Member of a group

    def offer(self, match: SharedMatch) -> None:
        """Take an event of the query."""
        if self._behind or not self._shape.wants(match.event):
            return
        if self._queue.waiting >= self._most_waiting:
            self._behind = True
            self._queue.drop()
            self._say("refreshed", reason=SLOW)
            self._outbox.put("", self._anew, queue=self._queue)
            return
        self._outbox.put(self._prefix, match.tail(self._shape), queue=self._queue)

    def notify(self, notice: Notice) -> None:
        """Take a notice."""
        match notice:
            case Stalled():
                self._say("stale", since=date_text(notice.since_ms))
            case Resumed():
                self._say("fresh", fresh_as_of=date_text(notice.fresh_as_of_ms))
            case DeliveryChanged():
                self._say("delivery", delivery=notice.delivery.value)
            case Resynchronized():
                self._say("resynchronized", events=notice.events)

    def fail(self, problem: ProtocolError) -> None:
        """End the subscription with an error."""
        self.leave()
        self._queue.drop()
        self._outbox.put(error_text(problem, id=self.request.id, now_ms=self._clock()))
        self._socket.ended(self)

    def _anew(self) -> str:
        """The result as it is when the client is ready for it. Events go on behind it."""
        self._behind = False
        return "" if self.group is None else "".join(self._result(self.group))

    def _put_result(self) -> None:
        assert self.group is not None
        head, data = self._result(self.group)
        self._outbox.put(head, data, queue=self._queue)

    def _result(self, group: QueryGroup) -> tuple[str, str]:
        """The message in two parts; the second is shared by all subscriptions."""
        head = self._text(
            "result",
            delivery=group.delivery.value,
            version=str(group.version),
            offset_token=group.position.token,
        )
        if not self.request.initial:
            return head, ""
        return f'{head[:-1]},"data":', group.result_text(self._shape.form)

    def _say(self, kind: str, **fields: Any) -> None:
        self._outbox.put(self._text(kind, **fields), queue=self._queue)

    def _text(self, kind: str, **fields: Any) -> str:
        return json.dumps(
            {"id": self.request.id, "type": kind, "date": date_text(self._clock()), **fields}, separators=(",", ":")
        )


def error_text(problem: ProtocolError, *, id: str | None, now_ms: int) -> str:  # noqa: A002 - the wire's name
    """Message that ends a subscription, or refuses a message."""
    error = {"message": problem.message, "status": problem.status, "reason": problem.reason}
    return json.dumps(
        {"id": id, "type": "error", "date": date_text(now_ms), "error": error},
        separators=(",", ":"),
        ensure_ascii=False,
    )
