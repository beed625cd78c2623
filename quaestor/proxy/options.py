"""Options of `quaestor proxy` about forwarding; the options about caching are in Settings."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from quaestor.errors import ConfigurationError

_MOST_AHEAD_BYTES = 16 * 1024 * 1024
_POSITIVE = (
    "connect_timeout_s", "read_timeout_s", "write_timeout_s", "pool_timeout_s", "max_connections", "body_min_bytes_per_s",
    "body_patience_s", "body_timeout_s",
)  # fmt: skip
_AUTHORITY = re.compile(r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_.\-]{1,253})(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions:
    """Options of forwarding.

    origin: scheme and authority of the origin, `http://127.0.0.1:3000`; no path: targets are sent on as they came.
    host: `preserve` sends the client's Host field on (the origin's certificate must then be for the origin's name),
        `origin` sends the origin's own.
    hosts: the Host values that are answered, without ports, in lower case; empty: any. Others get 421.
    trust_forwarded: keep `Forwarded` and `X-Forwarded-*` of requests, and add to them. Only for use behind a proxy of your
        own, because any client can send these fields.
    connect_timeout_s, read_timeout_s: longest time to reach the origin, and between two pieces of its answer.
    write_timeout_s: longest time between two pieces of a request.
    pool_timeout_s: how long a request waits for a free connection.
    body_ahead_bytes: bytes of a request's body, or the whole of a shorter one, that must come before the origin is asked; at most
        16 MiB.
    body_min_bytes_per_s: slowest rate at which a client may send its body, apart from the patience.
    body_patience_s: how far the body may fall behind that rate; also the longest silence.
    body_timeout_s: longest wait for one body in all.
    max_connections: most connections to the origin, per worker.
    keepalive_s: how long an idle connection is kept.
    origin_ca: PEM file that https origins are verified against; None: the system's.
    database: database of collections that an origin names without one.
    """

    origin: str
    host: str = "preserve"
    hosts: frozenset[str] = frozenset()
    trust_forwarded: bool = False
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 60.0
    write_timeout_s: float = 60.0
    pool_timeout_s: float = 5.0
    body_ahead_bytes: int = 64 * 1024
    body_min_bytes_per_s: float = 500.0
    body_patience_s: float = 30.0
    body_timeout_s: float = 600.0
    max_connections: int = 256
    keepalive_s: float = 4.0
    origin_ca: Path | None = None
    database: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.origin)
        bare = not parts.path.strip("/") and not parts.query and not parts.fragment and parts.username is None
        if parts.scheme not in ("http", "https") or not bare or _AUTHORITY.fullmatch(parts.netloc) is None:
            raise ConfigurationError(
                f"--origin is a URL like http://127.0.0.1:3000 without a path, not {self.origin!r}"
            )
        try:
            port = parts.port
        except ValueError as error:
            raise ConfigurationError(f"--origin {self.origin!r}: {error}") from error
        if port == 0:
            raise ConfigurationError(f"--origin {self.origin!r}: port 0 is no port")
        if self.host not in ("preserve", "origin"):
            raise ConfigurationError(f"--host-header is 'preserve' or 'origin', not {self.host!r}")
        for name in _POSITIVE:
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ConfigurationError(f"{name} must be a positive number, not {value}: name one, or leave it out")
        if not 0 <= self.body_ahead_bytes <= _MOST_AHEAD_BYTES:
            raise ConfigurationError(
                f"body_ahead_bytes is held in memory for each request: choose 0 to {_MOST_AHEAD_BYTES},"
                f" not {self.body_ahead_bytes}"
            )

    @property
    def base(self) -> str:
        """Base of the origin's URLs: scheme://authority, without a slash."""
        parts = urlsplit(self.origin)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def authority(self) -> bytes:
        """Authority of the origin, in the form of its own Host field."""
        return urlsplit(self.origin).netloc.encode("ascii")


def parse_listen(text: str) -> tuple[str, int]:
    """Address to listen at: `host:port`, `:port` (every interface) or `[::1]:port`.

    Port 0: any free one. Raises ConfigurationError.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigurationError(f"--listen is host:port like 127.0.0.1:8080, not {text!r}")
    return host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port)
