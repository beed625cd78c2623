"""Subscription of one socket to one query."""

from __future__ import annotations

import json
from typing import Any, Final, Protocol

from quaestor.clock import Clock
from quaestor.live.websocket.collapsing import Collapsing
from quaestor.live.websocket.cuts import Cuts, Held, refusal
from quaestor.live.websocket.events import EventShape, SharedMatch, date_text, message_text
from quaestor.live.websocket.forms import bson_head
from quaestor.live.websocket.group import QueryGroup
from quaestor.live.websocket.limits import SocketLimits
from quaestor.live.websocket.outbox import Frame, Outbox, Queue, Rest, joined
from quaestor.live.websocket.problems import ProtocolError
from quaestor.live.websocket.requests import Subscribe
from quaestor.model import Version
from quaestor.realtime.notices import DeliveryChanged, Notice, Resumed, Resynchronized, Stalled

SLOW: Final = "slow"
"""Reason of a `refreshed`: more events waited for the client than one subscription may leave unsent."""


class Socket(Protocol):
    """Part of a socket that its subscriptions need."""

    @property
    def outbox(self) -> Outbox:
        """Its unsent messages."""

    @property
    def cuts(self) -> Cuts | None:
        """Its cuts; None: each subscription advances by itself."""

    def ended(self, subscription: SocketSubscription, reason: str) -> None:
        """Forget a subscription that has ended."""

    def overflowed(self) -> None:
        """Count a subscription whose unsent events were dropped."""


class SocketSubscription:
    """Subscription of one socket to one query: a `Member` of the group of the query.

    request: the message that began it.
    number: among the subscriptions of the process (gc_freezing.py).
    """

    __slots__ = (
        "_behind",
        "_clock",
        "_collapsing",
        "_limits",
        "_outbox",
        "_prefix",
        "_queue",
        "_shape",
        "_socket",
        "group",
        "number",
        "request",
    )

    def __init__(
        self, socket: Socket, request: Subscribe, *, shape: EventShape, limits: SocketLimits, clock: Clock
    ) -> None:
        self.request = request
        self.number = 0
        self.group: QueryGroup | None = None
        self._socket = socket
        self._outbox = socket.outbox
        self._shape = shape
        self._limits = limits
        self._clock = clock
        self._queue = Queue()
        self._prefix = f'{{"id":{json.dumps(request.id)},'
        self._behind = False
        self._collapsing: Collapsing | None = None

    @property
    def version(self) -> Version:
        """Version of the newest write that the result may contain."""
        return 0 if self.group is None else self.group.version

    @property
    def contained(self) -> Version | None:
        """Version up to which the result contains every write; None: not known now."""
        return None if self.group is None else self.group.contained

    # Beginning and end

    def begin(self, group: QueryGroup) -> str:
        """Join the group. The client receives the result, or the events behind its `offset_token`.

        Return how it began, one of vocabularies.LIVE_BEGINNINGS.
        """
        token = self.request.offset_token
        missed = None if token is None else group.missed(token)
        self._join(group)
        if missed is not None:
            if self._socket.cuts is not None:
                self._socket.cuts.seen(group.version)  # the token may stand there
            wanted = sum(self._shape.wants(match.event) for match in missed)
            self._say("resumed", missed=wanted, offset_token=token)
            for match in missed:
                self._send(match)
            return "resumed"
        if token is not None:
            self._say("refreshed", reason="the events behind the token are not kept any more")
        self._put_result()
        return "new" if token is None else "refreshed"

    def move(self, group: QueryGroup, *, reason: str) -> None:
        """Go on in another group, after `drop`. The client receives the result anew.

        reason: for the client.
        """
        self._join(group)
        self._say("refreshed", reason=reason)
        self._put_result()

    def leave(self) -> None:
        """Leave the group without a word to the client."""
        if self._collapsing is not None:
            self._collapsing.stop()
            self._collapsing = None
        if self._socket.cuts is not None:
            self._socket.cuts.forget(self)
        if self.group is not None:
            self.group.leave(self)
            self.group = None

    def drop(self) -> None:
        """Leave the group, and send nothing that still waits."""
        self.leave()
        self._queue.drop()

    def _join(self, group: QueryGroup) -> None:
        self.group, self._behind = group, False
        group.join(self)
        if self.request.collapse > 0:
            self._collapsing = Collapsing(group, self.request.collapse, self._offer)

    # Member of a group

    def offer(self, match: SharedMatch) -> None:
        """Take an event of the query."""
        if self._collapsing is None:
            self._offer(match)
        else:
            self._collapsing.offer(match)

    def notify(self, notice: Notice) -> None:
        """Take a notice."""
        match notice:
            case Stalled():
                self._say("stale", since=date_text(notice.since_ms))
            case Resumed():
                self._say("fresh", fresh_as_of=date_text(notice.fresh_as_of_ms))
            case DeliveryChanged():
                self._say("delivery", delivery=notice.delivery.value)
                if self._socket.cuts is not None:
                    self.require_cut()
            case Resynchronized():
                self._say("resynchronized", events=notice.events)

    def require_cut(self) -> None:
        """End the subscription with an error if its records may be newer than a cut."""
        if self.group is not None and (problem := refusal(self.group.delivery, self.group.bucket)) is not None:
            self.fail(problem)

    def fail(self, problem: ProtocolError) -> None:
        """End the subscription with an error."""
        self.drop()
        self._outbox.put(error_text(problem, id=self.request.id, now_ms=self._clock()))
        self._socket.ended(self, problem.end)

    def _offer(self, match: SharedMatch) -> None:
        if self._behind:
            return
        limits = self._limits
        if self._queue.waiting < limits.waiting and self._outbox.size < limits.waiting_bytes:
            self._send(match)
        elif self._shape.wants(match.event):
            self._behind = True
            self._queue.drop()
            self._socket.overflowed()
            self._say("refreshed", reason=SLOW)
            self._put("", self._anew, version=None)

    def _send(self, match: SharedMatch) -> None:
        """Send an event, if the client wants it."""
        if not self._shape.form.binary:
            tail = match.tail(self._shape)
            if tail is not None:
                self._put(self._prefix, tail, version=match.version)
            return
        end = match.bson_end(self._shape)
        if end is not None:
            self._put(bson_head({"id": self.request.id}, end), end, version=match.version)

    def _anew(self) -> Frame:
        """The result as it is when the client is ready for it. Events go on behind it."""
        self._behind = False
        if self._collapsing is not None:
            self._collapsing.begin_anew()
        return "" if self.group is None else joined(*self._result(self.group))

    def _put_result(self) -> None:
        assert self.group is not None
        head, data = self._result(self.group)
        self._put(head, data, version=self.group.version)

    def _put(self, head: Frame, rest: Rest = "", *, version: Version | None = 0) -> None:
        cuts, queue = self._socket.cuts, self._queue
        if cuts is None:
            self._outbox.put(head, rest, queue=queue)
        else:
            queue.waiting += 1
            cuts.hold(self, Held(version, head, rest, queue, queue.generation))

    def _result(self, group: QueryGroup) -> tuple[Frame, Frame]:
        """The message in two parts; the second is shared by all subscriptions."""
        fields = {
            "delivery": group.delivery.value,
            "version": str(group.version),
            "offset_token": group.position.token,
        }
        form = self._shape.form
        if self.request.initial and form.binary:
            end = group.result_bson(form)
            date = date_text(self._clock())
            return bson_head({"id": self.request.id, "type": "result", "date": date, **fields}, end), end
        head = self._text("result", **fields)
        return (f'{head[:-1]},"data":', group.result_text(form)) if self.request.initial else (head, "")

    def _say(self, kind: str, **fields: Any) -> None:
        self._put(self._text(kind, **fields))

    def _text(self, kind: str, **fields: Any) -> str:
        return message_text(kind, id=self.request.id, now_ms=self._clock(), **fields)


def error_text(problem: ProtocolError, *, id: str | None, now_ms: int) -> str:  # noqa: A002 - the wire's name
    """Message that ends a subscription, or refuses a message."""
    error = {"message": problem.message, "status": problem.status, "reason": problem.reason}
    return message_text("error", id=id, now_ms=now_ms, error=error)
