"""Local S3 server. A conditional put is one atomic step, as the documentation of S3 promises."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import obstore.store
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

BUCKET = "tables"
KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}


class Quiet(WSGIRequestHandler):
    """Handler that keeps no log of requests."""

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""


class AtomicWrites:
    """WSGI application whose writing requests run one after the other."""

    def __init__(self, inner: Callable[..., Iterable[bytes]]) -> None:
        self._inner = inner
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self._inner(environ, start_response)
        with self._lock:
            return list(self._inner(environ, start_response))


@contextmanager
def object_store() -> Iterator[str]:
    """Run the server; its URL."""
    application = AtomicWrites(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **KEYS)
    try:
        client.create_bucket(Bucket=BUCKET)
        yield url
    finally:
        client.close()
        server.shutdown()
        thread.join()
        server.server_close()


def store_at(url: str) -> Any:
    """Client of the server, as an application makes it."""
    return obstore.store.S3Store(
        BUCKET,
        endpoint=url,
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
        **KEYS,
    )
