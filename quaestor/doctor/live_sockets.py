"""Check of proxies in front of live queries: a WebSocket is opened through a public URL, and its `ping` is answered."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, Final

from quaestor.doctor.diagnosis import Diagnosis, mend, ok, warn

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

SUBJECT: Final = "live"
IDLE_S: Final = 12.0
"""Silence that a socket must survive: the clients' interval between two `ping` (10 s), and some slack."""
_PATIENCE_S: Final = 5.0
_UPGRADES: Final = (
    "proxy_http_version 1.1;  # nginx, in the location of the endpoint",
    "proxy_set_header Upgrade $http_upgrade;",
    "proxy_set_header Connection upgrade;",
)


async def socket_diagnosis(url: str) -> Diagnosis:
    """Diagnosis of the way to one endpoint of live queries."""
    try:
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI, WebSocketException
    except ImportError:
        return warn(
            SUBJECT, f"{url}: not examined, because the package websockets is not installed", "pip install websockets"
        )
    try:
        async with connect(url, subprotocols=_protocol(), open_timeout=30, ping_interval=None) as socket:
            return await _silence(url, socket)
    except InvalidStatus as error:
        return _refused(url, error.response.status_code)
    except InvalidURI as error:
        return mend(SUBJECT, f"{url}: {error}")
    except InvalidHandshake as error:
        return mend(SUBJECT, f"{url}: the upgrade was refused ({error})", *_UPGRADES)
    except (OSError, TimeoutError, WebSocketException) as error:
        return mend(SUBJECT, f"{url}: no WebSocket ({error!r})")


def _protocol() -> list[Any]:
    return ["quaestor.v1"]


def _refused(url: str, status: int) -> Diagnosis:
    if status in (429, 503):
        return warn(SUBJECT, f"{url}: the endpoint has no place for a further socket ({status})")
    if status == 401:
        return warn(SUBJECT, f"{url}: credentials are wanted for the handshake ({status})")
    return mend(
        SUBJECT, f"{url}: the upgrade was refused with status {status}: no WebSocket passes the proxy", *_UPGRADES
    )


async def _silence(url: str, socket: ClientConnection) -> Diagnosis:
    """Ask twice, with a silence between."""
    from websockets.exceptions import ConnectionClosed

    began_s = time.monotonic()
    try:
        if not await _answered(socket):
            return mend(
                SUBJECT,
                f"{url}: the socket opened, and `ping` got no answer within {_PATIENCE_S:.0f} s: a proxy holds messages back",
                "# no buffering of upgraded connections",
            )
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(IDLE_S):
                await socket.wait_closed()
        except TimeoutError:
            pass
        if await _answered(socket):
            return ok(SUBJECT, f"{url}: messages pass at once, also after {IDLE_S:.0f} s of silence")
    except ConnectionClosed:
        pass
    idle_s = time.monotonic() - began_s
    return mend(
        SUBJECT,
        f"{url}: an idle socket was cut after {idle_s:.1f} s, before the next `ping` of a client (10 s)",
        "proxy_read_timeout 60s;  # nginx; elsewhere the idle time-out of the proxy",
    )


async def _answered(socket: ClientConnection) -> bool:
    await socket.send(json.dumps({"type": "ping", "id": "doctor"}))
    try:
        async with asyncio.timeout(_PATIENCE_S):
            while json.loads(await socket.recv()).get("type") != "pong":
                pass
    except TimeoutError:
        return False
    return True
