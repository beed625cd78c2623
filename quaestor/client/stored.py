"""Answers kept beyond a program's memory: hishel's storages with its rules of RFC 9111, between a client's memory and the
network.

For the rules of use (`quaestor.client.exchange`) this tier is a cache on the way, as little trusted as any other. Its answer is
accepted if it left the server within Δ, or if the sketch permits it. Otherwise it is requested again with `no-cache`, and hishel
asks the server. Thus the kept answers outlive the program and several programs may share them, but no guarantee depends on them.

A request that revalidates (`max-age=0`, which hishel ignores) is shown to hishel as `no-cache`, and restored for the network.
Every answer carries `max-age=0`. For hishel that is replaced by the lifetime of a public answer, and by `no-store` for all
others. Behind hishel the field is restored.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import httpx

from quaestor.client.fields import forbidden, lifetime
from quaestor.errors import ConfigurationError

if TYPE_CHECKING:
    from hishel import AsyncBaseStorage, BaseStorage

_log = logging.getLogger("quaestor.client")
_SAID = "quaestor-said-cache-control"
_REVALIDATE = "max-age=0"
_REMEDY = "storage needs hishel: pip install 'quaestor[client]'"


class AsyncStoredAnswers(httpx.AsyncBaseTransport):
    """Requests answered from one of hishel's storages, where its rules allow, or by the transport behind it.

    If a storage fails, requests go on to the network. Raises ConfigurationError if hishel is not installed.
    """

    def __init__(self, network: httpx.AsyncBaseTransport, storage: AsyncBaseStorage) -> None:
        try:
            from hishel.httpx import AsyncCacheTransport
        except ImportError as error:
            raise ConfigurationError(_REMEDY) from error
        self._network = network
        self._kept = AsyncCacheTransport(_AsyncMarked(network), storage, rfc={"shared": False})
        self._warned = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        try:
            return _restored(await self._kept.handle_async_request(_shown(request)))
        except (httpx.HTTPError, httpx.StreamError):
            raise
        except Exception as error:
            self._warned = _warn(error, warned=self._warned)
            return await self._network.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the storage and the transport behind it."""
        await self._kept.aclose()


class SyncStoredAnswers(httpx.BaseTransport):
    """Stored answers for the synchronous transport."""

    def __init__(self, network: httpx.BaseTransport, storage: BaseStorage) -> None:
        try:
            from hishel.httpx import CacheTransport
        except ImportError as error:
            raise ConfigurationError(_REMEDY) from error
        self._network = network
        self._kept = CacheTransport(_SyncMarked(network), storage, rfc={"shared": False})
        self._warned = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        try:
            return _restored(self._kept.handle_request(_shown(request)))
        except (httpx.HTTPError, httpx.StreamError):
            raise
        except Exception as error:
            self._warned = _warn(error, warned=self._warned)
            return self._network.handle_request(request)

    def close(self) -> None:
        """Close the storage and the transport behind it."""
        self._kept.close()


class _AsyncMarked(httpx.AsyncBaseTransport):
    def __init__(self, network: httpx.AsyncBaseTransport) -> None:
        self._network = network

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return _marked(await self._network.handle_async_request(_sent(request)))

    async def aclose(self) -> None:
        await self._network.aclose()


class _SyncMarked(httpx.BaseTransport):
    def __init__(self, network: httpx.BaseTransport) -> None:
        self._network = network

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return _marked(self._network.handle_request(_sent(request)))

    def close(self) -> None:
        self._network.close()


def _shown(request: httpx.Request) -> httpx.Request:
    """Return a request in the form for hishel."""
    if request.headers.get("cache-control") != _REVALIDATE:
        return request
    headers = httpx.Headers(request.headers)
    headers["cache-control"] = "no-cache"
    return httpx.Request(
        request.method, request.url, headers=headers, stream=request.stream,
        extensions={**request.extensions, _SAID: _REVALIDATE},
    )  # fmt: skip


def _sent(request: httpx.Request) -> httpx.Request:
    """Return the original request. Fields that hishel added stay; it removes them itself."""
    if _SAID in request.extensions:
        request.headers["cache-control"] = request.extensions[_SAID]
    return request


def _marked(response: httpx.Response) -> httpx.Response:
    """Return an answer in the form for hishel."""
    life, headers = lifetime(response.headers), response.headers
    may = life is not None and not life.private and not forbidden(headers, 10**15)
    headers[_SAID] = headers.get("cache-control", "")
    headers["cache-control"] = f"max-age={(life.until_ms - life.at_ms) // 1000}" if life and may else "no-store"
    return response


def _restored(response: httpx.Response) -> httpx.Response:
    """Return an answer in its original form."""
    said = response.headers.pop(_SAID, None)
    if said:
        response.headers["cache-control"] = said
    elif said is not None:
        response.headers.pop("cache-control", None)
    return response


def _warn(error: Exception, *, warned: bool) -> bool:
    if not warned:
        _log.warning("client.storage_failed: requests go on to the network: %s: %s", type(error).__name__, error)
    return True
