"""One app bare and cached, on a real mongod, and a clock that can be moved.

Each cached answer is one that the bare app gives to the same request, at the same moment, on an allowed state of the
database. The newest state is allowed, and so is an older one until a cell has proved that it knows the write that
ended it. That is less than the staleness bound allows.
Older states are read again in sessions that were fixed to them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pymongo import AsyncMongoClient
from starlette.requests import Request

from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware
from quaestor.testing.clock import EPOCH, VirtualClock
from tests.inputs.random_handlers import JUMPS, RECORDS, Ask, Change, Handler, Jump, Round, Story, Write, add
from tests.inputs.random_inputs import VALUES, WAYS, Records, Run, Said, Unseen, times
from tests.support import DEADLINE_S, PATIENT, eventually

DAY_MS = 86_400_000
LONG: dict[str, Any] = {"ttl_min_ms": 40 * DAY_MS, "ttl_max_ms": 40 * DAY_MS, "retention_ms": 40 * DAY_MS}
"""Nothing may end by itself when time is moved."""
OFFSETS_S = (
    -180_000, -90_000, -86_430, -86_395, -40_000, -7_200, -4_000, -3_640, -3_601, -3_595, -3_000, -900, -61, -31, -20, -1,
    0, 30, 600, 1_000, 3_700, 40_000, 86_410, 90_000,
)  # fmt: skip
"""Instants of the records, from the beginning of a story."""


_SERVED = 20


class WrongAnswerError(AssertionError):
    """An answer that the bare handler could not have given."""


@dataclass(frozen=True, slots=True)
class AsOf:
    """All that the bare app is shown of a moment. session: fixed to a state of the database; None: the newest."""

    moment: datetime
    said: Said
    session: Any = None


_as_of: ContextVar[AsOf] = ContextVar("as_of")


@dataclass(slots=True)
class State:
    """A state of the database. session: fixed to it, once another has followed. until_ms: when that was acknowledged."""

    session: Any = None
    until_ms: int = 0


@dataclass(slots=True, kw_only=True)
class Answered:
    """An answer of the cached app.

    moments: at which its handler may have looked at the clock.
    states: that it may have been made from, besides those since: these.
    since: number of states when it was asked for.
    how: its Cache-Status, and why.
    diverged: its route was quarantined when it was asked for.
    """

    ask: Ask
    status: int
    body: bytes
    how: str
    moments: list[datetime]
    states: list[State]
    since: int
    diverged: bool


@dataclass
class Inner:
    """A middleware between the cache and the current story's app. choosing: paths for which it leaves what a field says."""

    app: Any = field(default_factory=FastAPI)
    choosing: set[str] = field(default_factory=set)
    _earlier: dict[str, Any] = field(default_factory=dict)

    def serve(self, story: str, app: FastAPI) -> None:
        """Serve a story's app at paths that begin with its name. The last few are still served: answers may be verified."""
        self.app = self._earlier[story] = app
        while len(self._earlier) > _SERVED:
            del self._earlier[next(iter(self._earlier))]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"].rpartition("/")[0] in self.choosing:
            value = next((value.decode() for name, value in scope["headers"] if name == b"x-org-id"), "")
            scope["chosen"] = value
            scope.setdefault("state", {})["chosen"] = value
        await self._earlier.get(scope["path"].split("/")[1], self.app)(scope, receive, send)


class World:
    """One Quaestor, and the apps of one story after the other.

    tally: how answers came.
    moves: whether time can be moved; not where others have clocks of their own.
    """

    def __init__(
        self,
        mongo_url: str,
        database: str,
        directory: Path,
        *,
        moves: bool = True,
        patience_s: float = DEADLINE_S,
        **settings: Any,
    ) -> None:
        self.clock = VirtualClock()
        self.quaestor = Quaestor(
            clock=self.clock, **(PATIENT | LONG | {"heartbeat_ms": 20, "debug_header": True} | settings)
        )
        self.unseen = Unseen(directory / "said")
        self.tally: Counter[str] = Counter()
        self.moves = moves
        self.patience_s = patience_s
        self._captured: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
            mongo_url, event_listeners=[self.quaestor.capture]
        )
        self._other: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url)
        self._database = database
        self._bare_app, self._inner = Inner(), Inner()
        self._cached = QuaestorMiddleware(self._inner, quaestor=self.quaestor)
        self._looked: list[datetime] = []
        self._states = [State()]
        self._stories = 0
        self._handlers: tuple[Handler, ...] = ()
        self._collection = "plain"

    async def open(self) -> None:
        """Make the collections, and wait until the cache serves."""
        database = self._other[self._database]
        await database.create_collection("plain")
        await database.create_collection("indexed", changeStreamPreAndPostImages={"enabled": True})
        await database.indexed.create_index([("a", 1), ("n", 1)])
        await called(self._cached, Ask(0, ()).scope("/nothing", Handler((), "find")))
        await self.settled()

    async def close(self) -> None:
        await self.quaestor.stop()
        await self._captured.close()
        await self._other.drop_database(self._database)
        await self._other.close()

    # What happens

    async def play(self, story: Story) -> None:
        """Play a story from its beginning. Raises WrongAnswerError."""
        await self.begin(story)
        try:
            for round_ in story.rounds:
                await self._round(story, round_)
        finally:
            for state in self._states:
                if state.session is not None:
                    await state.session.end_session()

    async def begin(self, story: Story) -> None:
        """Serve its handlers at paths of their own, and fill the collection anew."""
        self._stories += 1
        self._handlers = story.handlers
        self._collection = "indexed" if story.indexed else "plain"
        cached, bare = FastAPI(openapi_url=None), FastAPI(openapi_url=None)
        for number, handler in enumerate(story.handlers):
            path = self.path(number)
            add(cached, path, handler, self._captured[self._database][self._collection], self._run_cached)
            add(bare, path, handler, self._records, self._run_bare)
            if any(WAYS[input_.way].inner for input_ in handler.inputs):
                self._inner.choosing.add(path)
        self._inner.serve(str(self._stories), cached)
        self._bare_app.serve(str(self._stories), bare)
        self._bare_app.choosing = self._inner.choosing
        if self.moves:
            now = self.clock.now()
            day = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
            self.clock.advance(max(day + timedelta(minutes=story.minute, seconds=7.25) - now, timedelta()))
        start = self.clock.now().replace(microsecond=0)
        await self._records.delete_many({})
        await self._records.insert_many(
            {
                "_id": key, "a": VALUES[key % 4], "b": VALUES[key // 4 % 4], "c": VALUES[key // 8 % 4], "n": str(key % 5),
                **times(start + timedelta(seconds=offset)),
            }
            for key, offset in zip(range(RECORDS), OFFSETS_S, strict=True)
        )  # fmt: skip
        await self._other[self._database].kept.replace_one({"_id": "level"}, {"value": "1"}, upsert=True)
        self._states = [State()]
        await self.settled()

    def path(self, handler: int) -> str:
        return f"/{self._stories}/{handler}"

    async def _round(self, story: Story, round_: Round) -> None:
        asks = [story.asks[number] for number in round_.asked]
        if isinstance(round_.happens, Write) and not round_.settled:
            _, answers = await asyncio.gather(self._write(round_.happens), self._ask_all(asks))
            for answered in answers:
                await self.judge(answered)
            return
        if isinstance(round_.happens, Write):
            await self._write(round_.happens)
        elif isinstance(round_.happens, Jump):
            self._jump(round_.happens)
        elif isinstance(round_.happens, Change):
            self.change(round_.happens)
        if round_.settled:
            await self.settled()
        for ask in asks:
            await self.judge(await self.ask(ask))

    async def _ask_all(self, asks: list[Ask]) -> list[Answered]:
        return [await self.ask(ask) for ask in asks]

    async def settled(self) -> None:
        """Wait until all that has happened is proved to be known."""
        moment_ms = self.clock() + 1
        await eventually(lambda: self._is_proved(moment_ms))

    def _is_proved(self, moment_ms: int) -> bool:
        return self.quaestor.registry.caught_up(now_ms=moment_ms + self.quaestor.settings.grid.staleness_bound_ms)

    async def _write(self, write: Write) -> None:
        before = self._states[-1]
        before.session = self._other.start_session(snapshot=True)
        await self._records.find_one({}, session=before.session)  # from now on it sees this state
        match write:
            case Write("set", key, name, value):
                await self._records.update_one({"_id": key}, {"$set": {name: value}})
            case Write("move", key):
                moved = times(self.clock.now().replace(microsecond=0) + timedelta(seconds=write.shift_s))
                await self._records.update_one({"_id": key}, {"$set": moved})
            case Write("insert", key):
                record = {"_id": key, "a": write.value, "b": write.value, "c": write.value, "n": "0"}
                await self._records.replace_one({"_id": key}, record | times(self.clock.now()), upsert=True)
            case Write("delete", key):
                await self._records.delete_one({"_id": key})
            case Write("level"):
                level = self._other[self._database].kept
                await level.update_one({"_id": "level"}, {"$set": {"value": write.value}})
            case _:
                await self._records.update_one({"_id": write.key}, {"$set": {"nothing": self.clock()}})
        self._states.append(State())
        before.until_ms = self.clock()

    def _jump(self, jump: Jump) -> None:
        now = self.clock.now()
        unit = timedelta(seconds=JUMPS[jump.unit])
        begins = EPOCH + ((now - EPOCH) // unit + 1) * unit
        self.clock.advance(max(begins + timedelta(milliseconds=jump.after_ms) - now, timedelta()))

    def change(self, change: Change) -> None:
        """Change the values that the cache cannot see."""
        self.unseen.say(change.said)

    # What is answered

    async def ask(self, ask: Ask) -> Answered:
        """Ask the cached app."""
        states = [state for state in self._states[:-1] if not self._is_proved(state.until_ms + 1)]
        diverged = self.path(ask.handler) in self.quarantined()
        since, looked, began = len(self._states) - 1, len(self._looked), self.clock.now()
        scope = ask.scope(self.path(ask.handler), self._handlers[ask.handler])
        status, headers, body = await called(self._cached, scope)
        ended = self.clock.now()
        how = headers.get("cache-status", "none")
        self.tally["hit" if "; hit" in how else "stored" if "stored" in how else how.partition("detail=")[2]] += 1
        # In between: whenever another second begins.
        seconds = range(int(began.timestamp()) + 1, int(ended.timestamp()) + 1)
        moments = [ended, began, *self._looked[looked:], *(EPOCH + timedelta(seconds=second) for second in seconds)]
        return Answered(
            ask=ask, status=status, body=b"" if ask.head else body, moments=moments, states=states, since=since,
            how=f"{how} {headers.get('x-quaestor-explain', '')}", diverged=diverged,
        )  # fmt: skip

    def quarantined(self) -> set[str]:
        """Paths whose routes are quarantined."""
        return {quarantine.route.rpartition(".")[2] for quarantine in self.quaestor.read_path.probation.quarantines}

    async def judge(self, answered: Answered) -> None:
        """Raises WrongAnswerError for one that the bare app could not have given."""
        if self._mixes_states(answered) or await self.could_have_been(answered, self.unseen.read()):
            return
        raise WrongAnswerError(await self._told(answered))

    def _mixes_states(self, answered: Answered) -> bool:
        """Return whether a handler ran for the request during a write, so that its first read may be older than a later
        one.

        Such mixtures happen without a cache too. An entry made of one is judged when it is a hit.
        """
        return "; hit" not in answered.how and len(self._states) - 1 > answered.since

    async def could_have_been(self, answered: Answered, said: Said) -> bool:
        """Whether the bare app gives this answer to its request, while what nobody can see says this."""
        handler = self._handlers[answered.ask.handler]
        moments = answered.moments if handler.looks_at_clock else answered.moments[:1]
        for state in [*reversed(self._states[answered.since :]), *reversed(answered.states)]:
            for moment in moments:
                if await self._bare(answered.ask, AsOf(moment, said, state.session)) == (
                    answered.status,
                    answered.body,
                ):
                    return True
        return False

    async def _bare(self, ask: Ask, as_of: AsOf) -> tuple[int, bytes]:
        _as_of.set(as_of)
        status, _, body = await called(self._bare_app, ask.scope(self.path(ask.handler), self._handlers[ask.handler]))
        return status, b"" if ask.head else body

    async def _told(self, answered: Answered) -> str:
        now = await self._bare(answered.ask, AsOf(answered.moments[0], self.unseen.read()))
        return (
            f"{answered.ask} to {self._handlers[answered.ask.handler]}\nwas answered {answered.status} {answered.body!r}\n"
            f"by {answered.how}\nat {answered.moments[0]}, and bare it is now {now}"
        )

    # What handlers see

    @property
    def _records(self) -> Records:
        return self._other[self._database][self._collection]

    def _look(self) -> datetime:
        self._looked.append(self.clock.now())
        return self._looked[-1]

    def _run_cached(self, request: Request, given: Mapping[int, Any]) -> Run:
        return Run(
            request=request, given=given, now=cache(self._look), kept=self._captured[self._database].kept,
            unseen=self._other[self._database].kept, said=self.unseen.read(),
        )  # fmt: skip

    def _run_bare(self, request: Request, given: Mapping[int, Any]) -> Run:
        as_of, kept = _as_of.get(), self._other[self._database].kept
        return Run(
            request=request, given=given, now=lambda: as_of.moment, kept=kept, unseen=kept, said=as_of.said,
            session=as_of.session,
        )  # fmt: skip


async def called(app: Any, scope: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    """Status, header fields and body of an answer."""
    sent: list[Any] = []
    requested = False

    async def receive() -> Any:
        nonlocal requested
        if requested:
            return {"type": "http.disconnect"}
        requested = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent)
