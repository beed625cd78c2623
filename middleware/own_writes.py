"""Answers to requests that wrote: they begin when nothing older than their writes is served any more."""

from __future__ import annotations

from quaestor.capture import WriteLog
from quaestor.middleware.interface import Message, Send
from quaestor.ports import OwnWritesBarrier


def after_own_writes(barrier: OwnWritesBarrier, log: WriteLog, send: Send) -> Send:
    """The `send` of a request that may write: what begins its answer is held back, what follows is not.

    log: of its writes, filled while its handler runs.
    """

    async def told(message: Message) -> None:
        if message["type"] == "http.response.start" and log.wrote:
            await barrier.passed(log.version)
        await send(message)

    return told
