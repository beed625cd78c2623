"""Command `quaestor proxy`: makes a running proxy from its options."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from quaestor.admin.token import AdminToken
from quaestor.errors import ConfigurationError
from quaestor.proxy.options import ProxyOptions, parse_listen
from quaestor.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyCommand:
    """Options of the command line; see `quaestor proxy --help`."""

    origin: str
    listen: str
    mongo_url: str | None
    redis_url: str | None
    deployment: str
    database: str | None
    admin_token_file: Path | None
    host_header: str
    hosts: tuple[str, ...]
    trust_forwarded: bool
    connect_timeout_s: float
    read_timeout_s: float
    body_ahead_bytes: int
    body_min_bytes_per_s: float
    body_patience_s: float
    body_timeout_s: float
    max_connections: int
    origin_ca: Path | None
    memory_bytes: int
    max_body_bytes: int
    certificate: Path | None
    key: Path | None
    metrics: bool
    dashboard: bool
    debug: bool


def run(command: ProxyCommand) -> None:
    """Serve until SIGINT or SIGTERM. Raises ConfigurationError before anything listens."""
    try:
        from quaestor.proxy.server import Listen, application, serve
    except ImportError as error:
        raise ConfigurationError(
            f"the proxy needs uvicorn, uvloop and httptools ({error}): pip install quaestor[proxy]"
        ) from error
    host, port = parse_listen(command.listen)
    if (command.certificate is None) != (command.key is None):
        raise ConfigurationError("--certificate and --key belong together: pass both or none")
    for option, file in (("--certificate", command.certificate), ("--key", command.key)):
        if file is not None and not file.is_file():
            raise ConfigurationError(f"{option} {file} is no file")
    token = AdminToken.load(command.admin_token_file) if command.admin_token_file is not None else None
    if command.dashboard and token is None:
        raise ConfigurationError("the dashboard is for holders of the token: name its file with --admin-token-file")
    app = application(
        options(command), settings(command), metrics=command.metrics, token=token, dashboard=command.dashboard
    )
    mode = "RFC 9111 cache" if command.mongo_url is None else "invalidated by MongoDB's change streams"
    serve(
        app,
        Listen(host=host, port=port, certfile=command.certificate, keyfile=command.key),
        started=lambda url: print(f"quaestor proxy: {url} -> {command.origin} ({mode})", file=sys.stderr, flush=True),
    )


def options(command: ProxyCommand) -> ProxyOptions:
    """Options of forwarding. Raises ConfigurationError, which names the remedy."""
    return ProxyOptions(
        origin=command.origin,
        host=command.host_header,
        hosts=frozenset(host.lower() for host in command.hosts),
        trust_forwarded=command.trust_forwarded,
        connect_timeout_s=command.connect_timeout_s,
        read_timeout_s=command.read_timeout_s,
        body_ahead_bytes=command.body_ahead_bytes,
        body_min_bytes_per_s=command.body_min_bytes_per_s,
        body_patience_s=command.body_patience_s,
        body_timeout_s=command.body_timeout_s,
        max_connections=command.max_connections,
        origin_ca=command.origin_ca,
        database=command.database,
    )


def settings(command: ProxyCommand) -> Settings:
    """Settings from QUAESTOR_* in the environment and from the command line, which wins."""
    return Settings.from_env(
        mongo_url=command.mongo_url,
        redis_url=command.redis_url,
        deployment=command.deployment,
        memory_bytes=command.memory_bytes,
        max_body_bytes=command.max_body_bytes,
        debug_header=command.debug,
        explicit=True,
        grid=command.mongo_url is not None,
    )
