"""Answers to requests that wrote: they are held back until no state older than their writes is served."""

from __future__ import annotations

from quaestor.capture import WriteLog
from quaestor.middleware.interface import Message, Send
from quaestor.ports import OwnWritesBarrier


def after_own_writes(barrier: OwnWritesBarrier, log: WriteLog, send: Send) -> Send:
    """Return a `send` for a request that may write. The start of the answer is held back; the rest follows at once.

    log: of its writes, filled while its handler runs.
    """

    async def send_after_writes(message: Message) -> None:
        if message["type"] == "http.response.start" and log.wrote:
            await barrier.passed(log.version)
        await send(message)

    return send_after_writes
