"""One socket: its messages in, its subscriptions, its messages out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import TaskGroup
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from quaestor.clock import Clock
from quaestor.errors import QuaestorError
from quaestor.gc_freezing import SUBSCRIPTIONS
from quaestor.live.websocket.client_rights import ClientRights
from quaestor.live.websocket.cuts import Cuts, refusal
from quaestor.live.websocket.events import EventShape, date_text, message_text
from quaestor.live.websocket.forms import RecordForm
from quaestor.live.websocket.group import QueryGroup
from quaestor.live.websocket.groups import QueryGroups
from quaestor.live.websocket.limits import SocketLimits
from quaestor.live.websocket.outbox import Outbox
from quaestor.live.websocket.principals import WhoSubscribes, expired
from quaestor.live.websocket.problems import ProtocolError
from quaestor.live.websocket.queries import WantedResult, wanted_result
from quaestor.live.websocket.requests import Cut, Ping, Request, Subscribe, Token, Unsubscribe, parse_request
from quaestor.live.websocket.subscription import SocketSubscription, error_text
from quaestor.model import Version
from quaestor.observability.live_metrics import LiveMetrics
from quaestor.rest.access import Access, Principal
from quaestor.rest.rights import Rights
from quaestor.token_bucket import TokenBucket

POLICY: Final = 1008
"""Close code: the client broke a rule (RFC 6455, section 7.4.1)."""
TOO_BIG: Final = 1009
TRY_LATER: Final = 1013
SLOW_READER_S: Final = 1.0
"""Time for one message, above which a client counts as a slow reader."""
_LOOK_EVERY_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketContext:
    """Parts of an endpoint that its sockets share.

    database: name of the database of all queries.
    who: the principal of a socket; None: every client is anonymous.
    """

    database: str
    access: Access
    who: WhoSubscribes | None
    limits: SocketLimits
    groups: QueryGroups
    metrics: LiveMetrics
    clock: Clock


class SocketClosedError(Exception):
    """End of a socket by the endpoint.

    code: of RFC 6455.
    end: of its subscriptions, one of vocabularies.LIVE_ENDS.
    """

    def __init__(self, code: int, reason: str, *, end: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.end = end


class SocketConnection:
    """Connection of one socket, after the handshake.

    outbox: unsent messages.
    cuts: of all subscriptions together; None: each advances by itself.
    heard_at_s: when the client last sent a message, by the event loop's clock.
    """

    __slots__ = (
        "_closed",
        "_context",
        "_form",
        "_pings",
        "_rights",
        "_subscriptions",
        "_tasks",
        "_within_s",
        "cuts",
        "heard_at_s",
        "outbox",
    )

    def __init__(self, scope: Scope, context: SocketContext, *, form: RecordForm) -> None:
        self.outbox = Outbox()
        self.cuts: Cuts | None = None
        self.heard_at_s = 0.0
        self._context = context
        self._form = form
        self._subscriptions: dict[str, SocketSubscription] = {}
        self._rights = ClientRights(context.who, scope, context.clock)
        self._pings = False
        self._within_s = 0.0
        self._closed: SocketClosedError | None = None
        self._tasks: TaskGroup | None = None

    async def run(self, receive: Receive, send: Send, *, prompt: bool) -> None:
        """Serve the socket until the client leaves. Raises SocketClosedError if the endpoint ends it.

        prompt: a send may begin in any task, and go on in another.
        """
        try:
            async with anyio.create_task_group() as self._tasks:
                self.outbox.open(send, drain=self._begin_to_drain if prompt else None)
                if not prompt:
                    self._tasks.start_soon(self._write, self.outbox.run)
                try:
                    await self._read(receive)
                finally:
                    self.outbox.close()
                self._tasks.cancel_scope.cancel()
        finally:
            reason = "left" if self._closed is None else self._closed.end
            for subscription in list(self._subscriptions.values()):
                subscription.leave()
                self.ended(subscription, reason)
        if self._closed is not None:
            raise self._closed

    def close(self, code: int, reason: str, *, end: str = "broken-rule") -> None:
        """End the socket.

        end: of its subscriptions, one of vocabularies.LIVE_ENDS.
        """
        if self._tasks is not None and self._closed is None:
            self._closed = SocketClosedError(code, reason, end=end)
            self._tasks.cancel_scope.cancel()

    def look(self, now_s: float) -> None:
        """Once a second: end what has lasted too long.

        now_s: by the event loop's clock.
        """
        limits = self._context.limits
        sending_since_s = self.outbox.sending_since_s
        if sending_since_s is not None and now_s - sending_since_s > limits.slow_s:
            self._context.metrics.slow.inc()
            self.close(TRY_LATER, "the client reads too slowly", end="slow")
        if self._pings and now_s - self.heard_at_s > self._within_s + limits.silence_s:
            self.close(POLICY, "no sign of life", end="silent")
        if self._rights.expire():
            self._end_all(expired())

    @property
    def user(self) -> str | None:
        """User of the socket now, if one is known."""
        return self._rights.user

    async def recheck(self) -> None:
        """Look anew at the rights of the client. Subscriptions go on with the rights that the client has now."""
        with suppress(ProtocolError):
            await self._take_rights(self._rights.look_again())

    def ended(self, subscription: SocketSubscription, reason: str) -> None:
        """Forget a subscription that has ended.

        reason: one of vocabularies.LIVE_ENDS.
        """
        if self._subscriptions.get(subscription.request.id) is subscription:
            del self._subscriptions[subscription.request.id]
            self._context.metrics.subscriptions.dec()
            SUBSCRIPTIONS.ended(subscription.number)
            self._context.metrics.ended.labels(reason).inc()

    def overflowed(self) -> None:
        """Count a subscription whose unsent events were dropped."""
        self._context.metrics.overflows.inc()

    def takes_long(self, now_s: float) -> bool:
        """Whether the client has been taking one message for more than a second."""
        sending_since_s = self.outbox.sending_since_s
        return sending_since_s is not None and now_s - sending_since_s > SLOW_READER_S

    def count_sent(self) -> None:
        """Add the messages that were sent since the last call to the metrics."""
        sent, self.outbox.sent = self.outbox.sent, 0
        if sent:
            self._context.metrics.sent.inc(sent)

    # Messages in

    async def _read(self, receive: Receive) -> None:
        loop, limits = asyncio.get_running_loop(), self._context.limits
        bucket = TokenBucket(per_second=limits.messages_per_second, burst=2 * limits.messages_per_second)
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text") or message.get("bytes") or ""
            if _bytes_of(text) > limits.message_bytes:
                self.close(TOO_BIG, f"a message may have {limits.message_bytes} bytes")
                return
            self.heard_at_s = loop.time()
            await self._handle(text)
            while self.outbox.is_full(limits.waiting * (1 + len(self._subscriptions))):  # noqa: ASYNC110
                await anyio.sleep(_LOOK_EVERY_S)  # a client that does not take the answers is not heard
            delay_ms = bucket.delay_ms(loop.time() * 1_000)
            if delay_ms:
                await anyio.sleep(delay_ms / 1_000)

    async def _handle(self, text: str | bytes) -> None:
        named: str | None = None
        try:
            request = parse_request(text)
            named = request.id
            await self._dispatch(request)
        except Exception as error:
            problem = ProtocolError.of(error, id=named)
            self._context.metrics.refused.inc()
            if not isinstance(error, ProtocolError | QuaestorError | HTTPException) and problem.status >= 500:
                self._context.groups.failed(error)
            self.outbox.put(error_text(problem, id=problem.id, now_ms=self._context.clock()))

    async def _dispatch(self, request: Request) -> None:
        match request:
            case Subscribe():
                await self._subscribe(request)
            case Unsubscribe():
                subscription = self._subscriptions.get(request.id)
                if subscription is not None:
                    subscription.drop()
                    self.ended(subscription, "unsubscribed")
            case Token():
                await self._take_rights(self._rights.renew(request.token))
            case Ping():
                self._pings, self._within_s = True, request.within / 1_000
                self.outbox.put(self._pong(request.id))
            case Cut():
                self._cut(on=request.on)

    async def _subscribe(self, request: Subscribe) -> None:
        limits = self._context.limits
        if request.id in self._subscriptions:
            raise ProtocolError(409, f"id: {request.id} names a subscription already; end it first")
        if len(self._subscriptions) >= limits.subscriptions:
            raise ProtocolError(429, f"Too many active subscriptions (only {limits.subscriptions} allowed)!")
        if request.token is not None and request.token != self._rights.token:
            await self._take_rights(self._rights.renew(request.token))
        group = await self._permitted_group(request)
        subscription = SocketSubscription(
            self,
            request,
            shape=EventShape.of(request, self._form),
            limits=limits,
            clock=self._context.clock,
        )
        self._subscriptions[request.id] = subscription
        self._context.metrics.subscriptions.inc()
        subscription.number = SUBSCRIPTIONS.begun()
        outcome = subscription.begin(group)
        self._context.metrics.begun.labels(outcome).inc()

    async def _permitted_group(self, request: Subscribe) -> QueryGroup:
        """The group of a query with the present rights of the client. Rights that change meanwhile are looked at again."""
        while True:
            principal = await self._rights.present()
            group = await self._group(self._wanted(request, principal))
            if request.offset_token is not None and not request.beforeImages:
                await group.look_back(request.offset_token)
                if group.failed is not None:
                    raise group.failed
            if self._rights.still(principal):
                return group

    def _wanted(self, request: Subscribe, principal: Principal) -> WantedResult:
        context = self._context
        rights = Rights(context.access, principal)
        return wanted_result(request, database=context.database, rights=rights, limits=context.limits)

    async def _group(self, wanted: WantedResult) -> QueryGroup:
        group = await self._context.groups.of(wanted)
        if self.cuts is not None and (problem := refusal(group.delivery, group.bucket)) is not None:
            raise problem
        return group

    async def _take_rights(self, judgement: Awaitable[Principal | None]) -> None:
        """Take new rights. Subscriptions without rights end now. Subscriptions with other rights receive nothing more until a new
        result.

        Raises ProtocolError if the credentials are refused; no subscription is left then.
        """
        try:
            principal = await judgement
        except Exception as error:
            problem = ProtocolError.of(error)
            self._end_all(problem)
            raise problem from error
        if principal is None:
            return
        for subscription in list(self._subscriptions.values()):
            try:
                wanted = self._wanted(subscription.request, principal)
            except Exception as error:
                subscription.fail(ProtocolError.of(error))
                continue
            if subscription.group is None or subscription.group.wanted != wanted:
                subscription.drop()
                if self._tasks is not None:
                    self._tasks.start_soon(self._move, subscription, wanted, principal)

    async def _move(self, subscription: SocketSubscription, wanted: WantedResult, principal: Principal) -> None:
        """Find a new group for a subscription that left its group. After a newer change of rights the newer task does so."""
        problem: ProtocolError | None = None
        try:
            group = await self._group(wanted)
        except Exception as error:
            problem = ProtocolError.of(error)
        is_there = self._subscriptions.get(subscription.request.id) is subscription
        if not is_there or subscription.group is not None or not self._rights.still(principal):
            return
        if problem is not None:
            subscription.fail(problem)
        else:
            subscription.move(group, reason="rights")

    def _cut(self, *, on: bool) -> None:
        if on and self.cuts is None:
            shown = max((subscription.version for subscription in self._subscriptions.values()), default=0)
            self.cuts = Cuts(self.outbox, self._cut_text, floor=shown)
            for subscription in list(self._subscriptions.values()):
                subscription.require_cut()
            assert self._tasks is not None
            self._tasks.start_soon(self._advance, self.cuts)
        elif not on and self.cuts is not None:
            cuts, self.cuts = self.cuts, None
            cuts.end()

    def _cut_text(self, version: Version) -> str:
        return message_text("cut", id=None, now_ms=self._context.clock(), version=str(version))

    async def _advance(self, cuts: Cuts) -> None:
        """Put out one cut after the other, while they are on."""
        while cuts is self.cuts:
            await cuts.waiting()
            self._context.groups.expect()
            if cuts is self.cuts:
                cuts.release(list(self._subscriptions.values()))

    def _end_all(self, problem: ProtocolError) -> None:
        for subscription in list(self._subscriptions.values()):
            subscription.fail(problem)

    def _pong(self, named: str | None) -> str:
        groups = [subscription.group for subscription in self._subscriptions.values() if subscription.group is not None]
        fresh_ms = min((group.live.fresh_as_of_ms for group in groups), default=0)
        fields = {"fresh_as_of": date_text(fresh_ms)} if fresh_ms else {}
        return message_text("pong", id=named, now_ms=self._context.clock(), **fields)

    # Messages out

    def _begin_to_drain(self) -> None:
        """Start a task that sends what waits."""
        if self._tasks is not None and self._closed is None:
            self._tasks.start_soon(self._write, self.outbox.drain)

    @staticmethod
    async def _write(sending: Callable[[], Awaitable[None]]) -> None:
        # Reading ends the socket. A server raises RuntimeError for a send behind its own `websocket.close`.
        with suppress(WebSocketDisconnect, OSError, RuntimeError):
            await sending()


def _bytes_of(text: str | bytes) -> int:
    """Size of a message. Encoding it is needed only where it may be too large."""
    return len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode("utf-8", "surrogatepass"))
