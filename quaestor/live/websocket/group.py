"""Group of the subscriptions of one process to one query: one follower, each event encoded once.

All methods run in one event loop. The rows change between two awaits only, with all messages of the change put out.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from quaestor.clock import Clock
from quaestor.errors import SubscriptionError
from quaestor.incremental import ResultEvent
from quaestor.incremental.events import differences
from quaestor.live.websocket.events import SharedMatch, names_itself
from quaestor.live.websocket.forms import RecordForm, bson_end, encoded
from quaestor.live.websocket.history import History
from quaestor.live.websocket.limits import SocketLimits
from quaestor.live.websocket.positions import Position
from quaestor.live.websocket.problems import ProtocolError
from quaestor.live.websocket.queries import WantedResult
from quaestor.model import Version
from quaestor.query.bson_order import order_key
from quaestor.realtime.live import LiveResult, Whole
from quaestor.realtime.messages import ResultChange
from quaestor.realtime.notices import DeliveryChanged, DeliveryMode, Notice, Resumed, Resynchronized, Stalled, Step
from quaestor.realtime.rows import ResultRows

_OF_ONE_MEMBER: Final = "-"
"""Follower in positions between events that only one subscription has received in this way."""


class Member(Protocol):
    """Subscription in a group."""

    def offer(self, match: SharedMatch) -> None:
        """Take an event of the query."""

    def notify(self, notice: Notice) -> None:
        """Take a notice."""

    def fail(self, problem: ProtocolError) -> None:
        """Take the end of the subscription."""


class QueryGroup:
    """Group of the subscriptions of one process to one query.

    wanted: the result that all of them want.
    members: the subscriptions.
    rows: the result as the newest events made it.
    version: of the newest write that the rows may contain.
    failed: why the query is followed no longer.
    """

    def __init__(
        self,
        wanted: WantedResult,
        live: LiveResult,
        *,
        limits: SocketLimits,
        clock: Clock,
        empty_since_ms: dict[QueryGroup, int],
    ) -> None:
        """Make a group without members.

        empty_since_ms: groups without members, with the time since when. The group notes itself there.
        """
        self.wanted = wanted
        self.live = live
        self.members: dict[Member, None] = {}
        self.rows = ResultRows(ordered=live.ordered)
        self.version: Version = 0
        self.failed: ProtocolError | None = None
        self._limits = limits
        self._clock = clock
        self._empty_since_ms = empty_since_ms
        empty_since_ms[self] = clock()
        self._name = uuid.uuid4().hex[:8]
        self._history: History | None = None
        self._whole: Whole | None = None
        self._events: list[ResultEvent] = []
        self._results: dict[RecordForm, str] = {}
        self._bson: dict[RecordForm, bytes] = {}

    @property
    def bucket(self) -> str:
        """Name of the collection."""
        return self.wanted.query.namespace.partition(".")[2]

    @property
    def position(self) -> Position:
        """Position of the rows."""
        assert self._history is not None, "the group has begun"
        return self._history.position

    async def begin(self) -> None:
        """Take the first result. Raises SubscriptionError, and ProtocolError (413) if it is too large."""
        while self._history is None:
            self._take(await anext(self.live))

    async def run(self) -> None:
        """Pass on events until the query cannot be followed any more, or the group is cancelled."""
        try:
            async for message in self.live:
                self._take(message)
        except (SubscriptionError, ProtocolError) as error:
            self.fail(ProtocolError.of(error))

    def join(self, member: Member) -> None:
        """Add a subscription. Its first event is the next change of the rows."""
        self.members[member] = None
        self._empty_since_ms.pop(self, None)

    def leave(self, member: Member) -> None:
        """Remove a subscription, if it is there."""
        if self.members.pop(member, self) is None and not self.members:
            self._empty_since_ms[self] = self._clock()

    def result_text(self, form: RecordForm) -> str:
        """The rows as a JSON array, their keys if some are not their `_id`s, and the end. Encoded once for each state."""
        text = self._results.get(form)
        if text is None:
            shown = self._shown(form)
            keys = f',"keys":{encoded(shown["keys"])}' if "keys" in shown else ""
            text = f"{encoded(shown['data'])}{keys}}}"
            self._results[form] = text
        return text

    def result_bson(self, form: RecordForm) -> bytes:
        """The same as fields of a BSON document, its end. Encoded once for each state."""
        end = self._bson.get(form)
        if end is None:
            end = bson_end(self._shown(form))
            self._bson[form] = end
        return end

    def _shown(self, form: RecordForm) -> dict[str, list[Any]]:
        """The rows as `data`, and their `keys` if some are not their `_id`s."""
        shown = {"data": [form.record(self.bucket, row.document) for row in self.rows]}
        if self.wanted.query.pipeline and not all(names_itself(row.id, row.document) for row in self.rows):
            shown["keys"] = [row.id for row in self.rows]
        return shown

    @property
    def contained(self) -> Version | None:
        """Version up to which the rows contain every write; None: events wait to be taken."""
        version = self.live.version
        return None if self.live.waiting or self._events else version

    def matched(self, events: Sequence[ResultEvent], *, before: Mapping[Any, Any]) -> Iterator[SharedMatch]:
        """The messages of the events that together lead one subscription to the present rows.

        before: the records as they were shown before, by order key. Only the last message stands at a position where a client can
            resume: the history knows other events.
        """
        for event, position in zip(events, self.position.behind_each(len(events), _OF_ONE_MEMBER), strict=True):
            yield self._match(event, before.get(order_key(event.key)), position)

    def _match(self, event: ResultEvent, before: Any, position: Position) -> SharedMatch:
        return SharedMatch(
            event, before=before, position=position, version=self.version, bucket=self.bucket, now_ms=self._clock()
        )

    def missed(self, token: str) -> list[SharedMatch] | None:
        """Events behind the position that a token names; None if they are not known."""
        return None if self._history is None else self._history.missed(token)

    async def look_back(self, token: str) -> None:
        """Learn the events behind a position that another process has shown, if this process began to follow later."""
        history, position = self._history, Position.parse(token)
        if history is None or position is None or not history.may_look_back(position):
            return
        async with history.looking_back:
            begun = history.begun
            if not history.may_look_back(position):
                return
            step = Step(epoch=begun.epoch, sequence=begun.sequence, version=0)
            changes = await self.live.earlier(step, wanted=position.sequence + 1)
            history.looked_back_to = position.sequence
            if changes:
                history.prepend(Position(begun.epoch, changes[0].sequence - 1), self._earlier(changes))

    def _earlier(self, changes: Sequence[ResultChange]) -> list[SharedMatch]:
        """Events of changes from before the first result here. A record before its first event among them is not known."""
        before: dict[Any, Any] = {}
        matches = []
        for change in changes:
            positions = Position(change.epoch, change.sequence).behind_each(len(change.events), self._name)
            for event, position in zip(change.events, positions, strict=True):
                key = order_key(event.key)
                matches.append(
                    SharedMatch(
                        event,
                        before=before.get(key),
                        position=position,
                        version=change.version,
                        bucket=self.bucket,
                        now_ms=self._clock(),
                    )
                )
                before[key] = event.document
        return matches

    def fail(self, problem: ProtocolError) -> None:
        """End all subscriptions."""
        self.failed = problem
        for member in list(self.members):
            member.fail(problem)
        self.members.clear()

    def _take(self, message: Whole | ResultEvent | Notice) -> None:
        match message:
            case ResultEvent():
                self._events.append(message)
            case Step():
                self._commit(message)
            case Whole():
                self._whole, self._events = message, []
            case Stalled() | Resumed() | DeliveryChanged() | Resynchronized():
                for member in list(self.members):
                    member.notify(message)

    def _commit(self, step: Step) -> None:
        """Apply one complete change."""
        events, whole = self._events, self._whole
        self._events, self._whole = [], None
        if whole is not None:
            self._require_small(len(whole.rows))
            rows = ResultRows(whole.rows, ordered=self.live.ordered)
            if self._history is None:
                self.rows, self.version = rows, step.version
                self._history = History(
                    Position(step.epoch, step.sequence),
                    most_events=self._limits.resume_events,
                    most_characters=self._limits.resume_bytes,
                )
                return
            events = differences(list(self.rows), list(rows), ordered=self.live.ordered)
        self.version = max(self.version, step.version)
        if events:
            self._results.clear()
            self._bson.clear()
        behind = Position(step.epoch, step.sequence)
        for event, position in zip(events, behind.behind_each(len(events), self._name), strict=True):
            self._pass_on(event, position)
        if not events and self._history is not None:
            self._history.advance(behind)
        self._require_small(len(self.rows))

    def _pass_on(self, event: ResultEvent, position: Position) -> None:
        before = self.rows.apply(event)
        match = self._match(event, None if before is None else before.document, position)
        for member in self.members:
            member.offer(match)
        assert self._history is not None
        self._history.add(match, match.characters)

    def _require_small(self, rows: int) -> None:
        if not self.wanted.bounded and rows > self._limits.unordered_rows:
            raise ProtocolError(
                413, f"the result has more than {self._limits.unordered_rows} records; subscribe with `limit`"
            )

    @property
    def delivery(self) -> DeliveryMode:
        """Delivery mode of the events."""
        return self.live.delivery
