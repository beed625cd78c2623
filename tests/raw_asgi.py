"""One request at ASGI level, as no client would send it: what a server might hand over all the same."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

Message = MutableMapping[str, Any]


async def answered(app: Any, scope: MutableMapping[str, Any], body: bytes = b"") -> tuple[int, bytes]:
    """Status and whole body of the app's answer to a scope of type http, whose client is gone once its body was read."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Message] = []

    async def receive() -> Message:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)
