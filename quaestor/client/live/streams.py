"""Streams of one subscription: whole results, or events. Asynchronous iterators that outlive the socket."""

from __future__ import annotations

import asyncio
import json
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import bson
from bson import CodecOptions, json_util
from bson.codec_options import DatetimeConversion

from quaestor.client.live.pauses import UNAVAILABLE, spread_pause_s
from quaestor.client.live.rows import LiveRows, Message, OutOfStepError
from quaestor.errors import ConfigurationError, SubscriptionError

Item = TypeVar("Item")
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
_OPTIONS: Final = json_util.JSONOptions(tz_aware=False)
_BSON_OPTIONS: Final[CodecOptions[Message]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)
_POSITION_PARTS: Final = 2
"""Parts of the token of a complete change. A token inside a change has more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEvent:
    """Change of a followed result.

    match_type: "add", "change", "changeIndex", "remove", or "match".
    operation: "insert", "update", "delete"; "none" for records of the first result and for indirect changes.
    document: the record as it is shown now; for "remove" as it was last known.
    before: the record as it was shown before, on request.
    index, previous_index: places, for a query with an order.
    initial: whether the record belongs to the first result.
    """

    match_type: str
    operation: str
    document: Any
    before: Any = None
    index: int | None = None
    previous_index: int | None = None
    initial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveGap:
    """Gap in the events: changes between the event before and the one after are not known one by one.

    reason: of the server.
    documents: the result behind the gap; None if the stream did not ask for the first result.
    """

    reason: str
    documents: list[Any] | None


class LiveStream(ABC, Generic[Item]):
    """Stream of one subscription. For one task. `async with` or aclose() ends the subscription.

    id: names the subscription on the socket.
    stale_since: since when the result may be outdated, as ISO 8601; None: it is up to date.
    """

    def __init__(
        self, fields: Mapping[str, Any], *, reconnects: int, ended: Callable[[LiveStream[Item]], Awaitable[None]]
    ) -> None:
        self.id = uuid.uuid4().hex
        self.stale_since: str | None = None
        self._fields = {"type": "subscribe", "id": self.id, **fields}
        self._reconnects = reconnects
        self._refusals = 0
        self._token: str | None = None
        self._ended = ended
        self._error: SubscriptionError | None = None
        self._closed = False
        self._arrived = asyncio.Event()
        self._active = asyncio.Event()

    async def active(self) -> None:
        """Wait until the server has answered. Raises SubscriptionError if it refuses the subscription."""
        await self._active.wait()
        if self._error is not None:
            raise self._error

    def request(self) -> dict[str, Any]:
        """The message that begins the subscription, or goes on behind the newest event."""
        return dict(self._fields) | ({} if self._token is None else {"offset_token": self._token})

    def lost(self, reason: str = "") -> bool:
        """Note that the socket broke off, or was not opened. Return whether the stream goes on with the next socket.

        reason: for the error of the stream.
        """
        if self._may_again():
            return True
        text = "the connection was lost, and the stream may not reconnect again"
        self._fail(SubscriptionError(f"{text}: {reason}" if reason else text))
        return False

    def _may_again(self) -> bool:
        """Whether the stream may connect once more. Counts the connection."""
        if self._reconnects == 0:
            return False
        self._reconnects -= self._reconnects > 0
        return True

    def pause_before_retry_s(self, message: Message) -> float | None:
        """Return the pause before the stream subscribes again, in seconds; None: the message is no error that may pass.

        Each such error counts as a lost connection.
        """
        may_pass = message["type"] == "error" and message["error"]["status"] in UNAVAILABLE
        if not (may_pass and self._may_again()):
            return None
        self._refusals += 1
        return spread_pause_s(self._refusals)

    def take(self, message: Message, *, held: bool = False) -> bool:
        """Take a message of the server. Return whether the result has to be read anew.

        held: whether `show` follows later.
        """
        kind = message["type"]
        if kind in ("result", "resumed"):
            self._refusals = 0
            self._active.set()
        token = message.get("offset_token")
        if held:
            self._keep()
        try:
            if kind == "result":
                self._begin(message)
            elif kind == "match":
                self._change(message)
            elif kind == "refreshed":
                self._refresh(message)
            elif kind in ("stale", "fresh"):
                self.stale_since = message.get("since")
            elif kind == "error":
                error = message["error"]
                self._fail(SubscriptionError(error["message"], retryable=error["status"] >= 500))
        except (OutOfStepError, KeyError, ValueError):
            self._token = None
            self._drop()
            return True
        if token is not None:
            self._token = token
        if not held:
            self.show()
        return False

    @abstractmethod
    def show(self) -> None:
        """Give the reader the messages so far."""

    def fail(self, error: SubscriptionError) -> None:
        """End the stream with an error."""
        self._fail(error)

    async def aclose(self) -> None:
        """End the subscription. Does nothing the second time."""
        if not self._closed:
            self._closed = True
            self._arrived.set()
            await self._ended(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        while True:
            if self._closed:
                raise StopAsyncIteration
            self._arrived.clear()
            item = self._next()
            if item is not None:
                return item
            if self._error is not None:
                raise self._error
            await self._arrived.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @abstractmethod
    def _next(self) -> Item | None:
        """Take the next item; None: there is none yet."""

    @abstractmethod
    def _begin(self, message: Message) -> None:
        """Take the result."""

    @abstractmethod
    def _change(self, message: Message) -> None:
        """Take a change of the result."""

    def _keep(self) -> None:
        """Keep what is shown now, before a change that is shown later."""

    def _drop(self) -> None:
        """Note that the state is broken. Nothing of it may be shown."""

    def _refresh(self, message: Message) -> None:
        """Note that the next result follows on a gap."""

    def _fail(self, error: SubscriptionError) -> None:
        self._error = self._error or error
        self._arrived.set()
        self._active.set()


class ResultStream(LiveStream[list[Any]]):
    """Whole results: the present one first, then the newest one whenever it has changed. Older ones are left out."""

    def __init__(self, fields: Mapping[str, Any], **options: Any) -> None:
        super().__init__(fields, **options)
        self._rows = LiveRows()
        self._shown: list[Any] | None = None
        self._changed = False
        """Whether the rows are newer than what the reader may see."""
        self._outdated = False
        """Whether the reader may see the present rows, and `_shown` is older: made when it is needed."""
        self._news = False

    def latest(self) -> list[Any] | None:
        """The result that is shown now; None before the first one. The records belong to the stream: do not change them."""
        if self._outdated:
            self._outdated, self._shown = False, self._rows.records()
        return None if self._shown is None else list(self._shown)

    def show(self) -> None:
        if self._changed:
            self._changed, self._outdated, self._news = False, True, True
            self._arrived.set()

    def _next(self) -> list[Any] | None:
        if not self._news:
            return None
        self._news = False
        return self.latest()

    def _begin(self, message: Message) -> None:
        self._rows.replace(message["data"], message.get("keys"))
        self._changed = True

    def _change(self, message: Message) -> None:
        self._rows.apply(message)
        if message.get("offset_token", "").count("/") < _POSITION_PARTS:
            self._changed = True

    def _keep(self) -> None:
        self.latest()

    def _drop(self) -> None:
        self._news = self._news and not self._outdated
        self._changed = self._outdated = False


class EventStream(LiveStream[LiveEvent | LiveGap]):
    """Events, each once and in order; a `LiveGap` stands where some are not known.

    waiting: events that may wait for their reader; beyond them the oldest give way to a gap.
    """

    def __init__(self, fields: Mapping[str, Any], *, waiting: int, **options: Any) -> None:
        super().__init__(fields, **options)
        self._waiting = waiting
        self._items: deque[LiveEvent | LiveGap] = deque()
        self._held: list[LiveEvent | LiveGap] = []
        self._gap: str | None = None

    def show(self) -> None:
        held, self._held = self._held, []
        for item in held:
            self._put(item)

    def _next(self) -> LiveEvent | LiveGap | None:
        return self._items.popleft() if self._items else None

    def _begin(self, message: Message) -> None:
        documents = message.get("data")
        if self._gap is not None:
            self._held.append(LiveGap(reason=self._gap, documents=documents))
            self._gap = None
        else:
            for document in documents or ():
                self._held.append(LiveEvent(match_type="add", operation="none", document=document, initial=True))

    def _change(self, message: Message) -> None:
        self._held.append(
            LiveEvent(
                match_type=message["matchType"],
                operation=message["operation"],
                document=message["data"],
                before=message.get("before"),
                index=message.get("index"),
                previous_index=message.get("previousIndex"),
            )
        )

    def _refresh(self, message: Message) -> None:
        self._gap = message["reason"]

    def _put(self, item: LiveEvent | LiveGap) -> None:
        if len(self._items) >= self._waiting:
            self._items.clear()
            item = LiveGap(reason="the reader was slower than the events", documents=None)
        self._items.append(item)
        self._arrived.set()


def decoded(text: str | bytes) -> Message:
    """Message of the server, with BSON types: each record is decoded once, when it comes.

    text: JSON, or BSON as bytes.
    """
    if isinstance(text, bytes):
        return bson.decode(text, _BSON_OPTIONS)
    message: Message = json_util.loads(text, json_options=_OPTIONS)
    return message


def query_fields(
    collection: str,
    filter: Mapping[str, Any] | None,  # noqa: A002 - pymongo's name
    sort: Sequence[tuple[str, int]] | None,
    skip: int,
    limit: int,
    *,
    pipeline: Sequence[Mapping[str, Any]] | None = None,
    collation: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The fields of a `subscribe` message that name a query. Raises ConfigurationError for a pipeline beside a query."""
    fields: dict[str, Any] = {"bucket": collection}
    if collation is not None:
        fields["collation"] = dict(collation)
    if pipeline is not None:
        if filter or sort or skip or limit:
            raise ConfigurationError("pipeline= stands in place of a filter, sort=, skip= and limit=")
        return fields | {"pipeline": json_util.dumps(list(pipeline))}
    fields["query"] = json_util.dumps(filter or {})
    if sort:
        fields["sort"] = json.dumps(dict(sort))
    if skip:
        fields["offset"] = skip
    if limit:
        fields["limit"] = limit
    return fields
