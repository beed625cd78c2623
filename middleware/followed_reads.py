"""Reads for followers: a GET of the middleware's own, through the same read path as the requests of clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from quaestor.live.answers import FollowedAnswer, Named
from quaestor.middleware.interface import Message, Scope
from quaestor.model import CachedResponse
from quaestor.read_path.outdated_labels import labels
from quaestor.read_path.request import KNOWN
from quaestor.read_path.service import ReadPath
from quaestor.read_path.validation import strong_etag

LONGEST_S = 30.0
"""How long a handler has for an answer that followers wait for."""
FOLLOWED_FACTS = "quaestor.followed_facts"
"""In the scope of a follower: the facts of its header fields, so that they are read once. Handlers do not see them."""
_OF_THE_STREAM = frozenset({b"accept", b"accept-encoding", b"last-event-id"})
_OF_ONE_CLIENT = frozenset(
    {b"if-none-match", b"if-modified-since", b"range", b"if-range", b"cache-control", b"pragma", b"prefer", KNOWN}
)


class Reading:
    """The answer to one read, as it comes in.

    on_withdrawn: called when nothing guards the answer any more although it was not invalidated.
    outcome: done when the answer is complete; an exception is what the handler has raised.
    """

    def __init__(self, on_withdrawn: Callable[[], None], *, most_bytes: int) -> None:
        self._on_withdrawn = on_withdrawn
        self._most_bytes = most_bytes
        self._entry: CachedResponse | None = None
        self._reasons: tuple[str, ...] = ()
        self._start: Message | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self.outcome: asyncio.Future[FollowedAnswer | Exception] = asyncio.get_running_loop().create_future()

    def stored(self, entry: CachedResponse) -> None:
        """Note the entry that the answer is sent from."""
        self._entry = entry

    def withheld(self, reasons: Sequence[str]) -> None:
        """Note why the answer is not stored."""
        self._entry, self._reasons = None, tuple(reasons)

    def withdrawn(self) -> None:
        """Have the followers read again."""
        self._on_withdrawn()

    async def __call__(self, message: Message) -> None:
        """Take a message of the answer: a reading is an ASGI `send`."""
        if self.outcome.done():
            return
        if message["type"] == "http.response.start":
            self._start = message
            if "stream" in self._reasons:
                self.cut("stream")
        elif message["type"] == "http.response.body" and self._start is not None:
            self._take(message.get("body", b""), more=message.get("more_body", False))

    def cut(self, reason: str) -> None:
        """End an answer that is too long, or that never ends."""
        self._reasons = self._reasons or (reason,)
        if not self.outcome.done():
            self.outcome.set_result(self._whole() if self._start is not None else TimeoutError(reason))

    def failed(self, error: Exception) -> bool:
        """Note that the handler has raised. False: the answer was complete before that."""
        if self.outcome.done():
            return False
        self.outcome.set_result(error)
        return True

    def _take(self, body: bytes, *, more: bool) -> None:
        self._pieces.append(body)
        self._size += len(body)
        if not more:
            self.outcome.set_result(self._whole())
        elif self._size > self._most_bytes:
            self.cut("too-large")

    def _whole(self) -> FollowedAnswer:
        assert self._start is not None
        entry = self._entry
        if entry is not None:
            names = (*entry.registrations, *labels(entry))
            return FollowedAnswer(
                status=entry.status, headers=entry.headers, body=entry.body, etag=entry.etag, entry=entry, names=names
            )
        headers = tuple((bytes(name), bytes(value)) for name, value in self._start.get("headers", ()))
        body = b"".join(self._pieces)
        return FollowedAnswer(
            status=self._start["status"], headers=headers, body=body, etag=strong_etag(body), reasons=self._reasons
        )


class FollowedReads:
    """Implements live.answers.Reader with the middleware's read path.

    name: the name of what a scope asks for, see Reader.named.
    ask: answers a scope through the cache, and tells the reading.
    """

    def __init__(
        self,
        read_path: ReadPath,
        *,
        name: Callable[[Scope], Named],
        ask: Callable[[Scope, Reading], Awaitable[None]],
    ) -> None:
        self._read_path = read_path
        self._usability = read_path.usability
        self._name = name
        self._ask = ask
        self._errands = read_path.process.supervisor.errands("live-reads")

    def named(self, scope: Scope) -> Named:
        """See Reader."""
        return self._name(scope)

    async def read(self, scope: Scope, *, withdrawn: Callable[[], None]) -> FollowedAnswer:
        """See Reader. The answer is there as soon as it is complete; its handler may have more to do after it."""
        reading = Reading(withdrawn, most_bytes=self._read_path.process.settings.store.max_body_bytes)
        # Fresh containers: the application writes into them.
        own_scope = {**scope, "headers": list(scope["headers"]), "state": dict(scope.get("state") or {})}
        own_scope.pop(FOLLOWED_FACTS, None)
        task = self._errands.start(self._run(own_scope, reading))
        try:
            async with asyncio.timeout(LONGEST_S):
                outcome = await asyncio.shield(reading.outcome)
        except TimeoutError:
            reading.cut("stream")
            outcome = reading.outcome.result()
            task.cancel()
        if isinstance(outcome, Exception):
            raise outcome
        if outcome.reasons:
            task.cancel()
        return outcome

    async def _run(self, scope: Scope, reading: Reading) -> None:
        try:
            await self._ask(scope, reading)
            reading.failed(ConnectionError("the handler has ended without an answer"))
        except Exception as error:
            if not reading.failed(error):
                self._read_path.process.telemetry.failure("handler", "live.read_failed", repr(error))

    def valid(self, answer: FollowedAnswer) -> bool:
        """See Reader."""
        return answer.entry is not None and self._usability.trusted(answer.entry)

    def lives_s(self, answer: FollowedAnswer) -> float:
        """See Reader."""
        return 0.0 if answer.entry is None else (answer.entry.fresh_until_ms - self._read_path.clock()) / 1000

    def stands(self, answer: FollowedAnswer) -> bool:
        """See Reader."""
        return self._usability.stands(answer.entry) if answer.entry is not None else False

    async def stop(self) -> None:
        """End the reads under way."""
        await self._errands.aclose()


def as_plain_get(scope: Scope, *, stream: bool) -> Scope:
    """The scope of a GET for the same, without the conditions of one client.

    stream: the client follows by a stream, whose events carry the body as it is.
    """
    left_out = _OF_ONE_CLIENT | _OF_THE_STREAM if stream else _OF_ONE_CLIENT
    headers = [(name, value) for name, value in scope["headers"] if name not in left_out]
    if stream:
        headers.append((b"accept", b"*/*"))
    extensions = {name: known for name, known in (scope.get("extensions") or {}).items() if name == "tls"}
    return {**scope, "method": "GET", "headers": headers, "extensions": extensions}
