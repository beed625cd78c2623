"""Real receivers on local ports: an HTTP server that a test scripts, and a mail server of aiosmtpd."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.smtp import SMTP

HANG = b""
"""Script of an answer that never comes."""
CLOSE = b"close"
"""Script of a connection that is closed without an answer."""
KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def status(code: int, **fields: str) -> bytes:
    """Return an answer without a body."""
    lines = [
        f"HTTP/1.1 {code} Status",
        "content-length: 0",
        *(f"{name.replace('_', '-')}: {value}" for name, value in fields.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


@dataclass
class Receiver:
    """HTTP server. Each request takes the next script; without a script the answer is 204.

    requests: fields and body of each.
    left: set once a client has closed its connection.
    """

    port: int = 0
    scripts: deque[bytes] = field(default_factory=deque)
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request, play its script, and wait for the client to leave."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            fields = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
            }
            self.requests.append((fields, await reader.readexactly(int(fields.get("content-length", 0)))))
            script = self.scripts.popleft() if self.scripts else status(204)
            if script != CLOSE:
                writer.write(script)
                await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.left.set()
            writer.close()


@asynccontextmanager
async def receiver(*scripts: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """Run a scripted HTTP server on a free port of 127.0.0.1."""
    scripted = Receiver(scripts=deque(scripts))
    server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0, ssl=tls)
    scripted.port = server.sockets[0].getsockname()[1]
    try:
        yield scripted
    finally:
        server.close()


@dataclass
class Mailbox:
    """Handler of aiosmtpd that keeps messages, or refuses recipients with a queued answer."""

    port: int = 0
    refusals: deque[str] = field(default_factory=deque)
    messages: list[EmailMessage] = field(default_factory=list)

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:  # noqa: N802
        """See aiosmtpd."""
        if self.refusals:
            return self.refusals.popleft()
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        """See aiosmtpd."""
        message = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(message, EmailMessage)
        self.messages.append(message)
        return "250 OK"


@asynccontextmanager
async def mailbox(*refusals: str) -> AsyncIterator[Mailbox]:
    """Run a mail server on a free port of 127.0.0.1."""
    handler = Mailbox(refusals=deque(refusals))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(handler, loop=loop, enable_SMTPUTF8=True), "127.0.0.1", 0)
    handler.port = server.sockets[0].getsockname()[1]
    try:
        yield handler
    finally:
        server.close()
