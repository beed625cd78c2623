"""Servers in a thread of the test: an application under uvicorn, with real HTTP, or a server of the standard library."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer
from typing import TYPE_CHECKING, Any, Final

from quaestor.errors import ConfigurationError
from quaestor.testing.servers import HOST

if TYPE_CHECKING:
    import uvicorn

_STEP_S: Final = 0.005
WITHIN_S: Final = 60.0
"""Limit for a start and for a stop."""


@contextmanager
def served(server: BaseServer) -> Iterator[None]:
    """Run a server of the standard library in a thread of its own until the block ends."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        threading.Thread(target=server.shutdown, daemon=True).start()  # it waits without a limit
        thread.join(WITHIN_S)
        server.server_close()
        assert not thread.is_alive(), f"the server has not ended {WITHIN_S:g} s after its stop"


@contextmanager
def served_by_uvicorn(config: uvicorn.Config, *, within_s: float = WITHIN_S) -> Iterator[str]:
    """Serve an application until the block ends; gives its URL. Raises AssertionError if start or stop takes over within_s."""
    import uvicorn

    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        end_s = time.monotonic() + within_s
        while not server.started:
            assert thread.is_alive(), "the server has ended before it listened: see its log for the application's error"
            assert time.monotonic() < end_s, f"the server does not listen after {within_s:g} s"
            time.sleep(_STEP_S)
        yield f"http://{HOST}:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(within_s)
        assert not thread.is_alive(), f"the server has not ended {within_s:g} s after its stop"


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an ASGI application, with its lifespan, on a free loopback port until the block ends; gives its URL.

    Raises ConfigurationError without uvicorn.
    """
    try:
        import uvicorn
    except ImportError as error:
        raise ConfigurationError(
            "an app is served over HTTP by uvicorn, which is missing: pip install uvicorn"
        ) from error

    # log_config=None: the logging of the test process stays as it is.
    config = uvicorn.Config(
        app, host=HOST, port=0, lifespan="on", log_config=None, log_level="warning", access_log=False
    )
    with served_by_uvicorn(config) as url:
        yield url
