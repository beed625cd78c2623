"""Server of metrics over HTTP, for a process that serves nothing else.

The server is small on purpose: GET /metrics, few requests at a time, none for long.
"""

from __future__ import annotations

import socket
import socketserver
import threading
from http.server import ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import MetricsHandler

from quaestor.errors import ConfigurationError

_MOST_AT_ONCE: Final = 8
_PATIENCE_S: Final = 5.0
_LARGEST_PORT: Final = 65_535


class _Handler(MetricsHandler):
    timeout = _PATIENCE_S

    def do_GET(self) -> None:  # noqa: N802
        if self.path.partition("?")[0] not in ("/metrics", "/"):
            self.send_error(404)
            return
        super().do_GET()


class _Server(ThreadingHTTPServer):
    """Server that hangs up on new clients while it answers its maximum."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._room = threading.BoundedSemaphore(_MOST_AT_ONCE)
        super().__init__(*arguments)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's own method asks DNS for a name that is not needed

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that has gone away."""


class MetricsServer:
    """Server of a registry's metrics at `url`, as Prometheus text.

    Listens from the beginning, answers from start() on, ends with its block.

    Raises ConfigurationError, in one sentence, if it cannot listen there.
    """

    def __init__(self, registry: CollectorRegistry, *, host: str, port: int) -> None:
        """Listen.

        port: 0 takes any free port.
        """
        if not 0 <= port <= _LARGEST_PORT:
            raise ConfigurationError(f"the metrics' port must lie in 0..{_LARGEST_PORT}, not {port}")
        handler = type("Handler", (_Handler,), {"registry": registry})
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            server = type("Server", (_Server,), {"address_family": family})
            self._server: _Server = server(address, handler)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigurationError(
                f"metrics cannot be served on {host} port {port} ({reason}): choose another --metrics-port or --metrics-host"
            ) from error
        name = f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self._server.server_address[1]}/metrics"
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Answer requests in a thread of its own."""
        self._thread = threading.Thread(target=self._server.serve_forever, name="quaestor-metrics", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
