"""Channel of another instance as a source: the results of a subscription are pulled as pages, and each is a record once.

A page of runs never changes, so the place of a result in its run is an offset that can be read again.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import httpx

from quaestor.channels.feeds.records import Incoming, SourceLostError
from quaestor.continuous.delivery.networks import Networks
from quaestor.continuous.delivery.signed_requests import checked, pinned_stream, port_of
from quaestor.continuous.delivery.sink import DeliveryError
from quaestor.errors import ConfigurationError, DependencyError

_ID: Final = re.compile(r"[A-Za-z0-9-]{1,100}", re.ASCII)
_TIMEOUT_S: Final = 30.0
_WAIT_S: Final = 1
"""Time for which the other instance holds a request back while there is no new run."""
_MOST_BYTES: Final = 256 << 20
"""Bytes of a page, expanded. A page holds whole runs."""


class ChannelSource:
    """Results of one subscription on a channel of another instance.

    url: of the channel, like https://host/channels/Local; http only within the allowed private networks.
    subscription: its id.
    networks: private networks that may be reached, besides public addresses.

    Use from one thread.
    """

    def __init__(self, url: str, subscription: str, *, networks: Networks) -> None:
        base = checked(url)
        if not _ID.fullmatch(subscription):
            raise ConfigurationError(f"{subscription[:80]!r} is no id of a subscription")
        self._name = str(base)
        self._url = base.copy_with(path=f"{base.path.rstrip('/')}/subscriptions/{subscription}/results")
        self._networks = networks
        self._reached = ("", 0)

    def begin(self) -> str:
        """See OffsetSource."""
        return ""

    def read(self, after: str, most: int) -> Sequence[Incoming]:
        """See OffsetSource. An offset is the run and the number of a result.

        Raises SourceLostError if results after the offset are no longer kept, or may not be.
        """
        run, row = json.loads(after) if after else (0, -1)
        # The run of the offset may have more results. Once it has none, its page is not read again.
        begin = self._reached[1] if self._reached[0] == after else max(0, run - 1)
        while True:
            page = asyncio.run(self._page(begin, most))
            if after and "from" in page:
                raise SourceLostError(f"{self._name}: results after {after} may be gone: they are no longer kept")
            records = [entry for place, entry in _placed(page) if place > (run, row)]
            begin = int(page["next"])
            if records or page["complete"]:
                break
        if not records:
            self._reached = (after, begin)
        return records[:most]

    def close(self) -> None:
        """See OffsetSource."""

    async def _page(self, after: int, most: int) -> Mapping[str, Any]:
        """Return a page of the runs after a run. Raises DependencyError."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                body = await self._answer(after, most)
            page: dict[str, Any] = json.loads(body)
            list(_placed(page))
            if not isinstance(page["next"], int) or page["next"] < after or not isinstance(page["complete"], bool):
                raise ValueError("next and complete are missing, or the page goes back")
            return page
        except DeliveryError as error:
            raise DependencyError(str(error)) from error
        except (TimeoutError, httpx.HTTPError, OSError) as error:
            raise DependencyError(f"{self._name} could not be read: {error!r}") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DependencyError(f"{self._name} sent no page of results: {error}") from error

    async def _answer(self, after: int, most: int) -> bytes:
        url = self._url.copy_with(params={"after": str(after), "limit": str(most)})
        address = await self._networks.address_of(url.host, port_of(url))
        if url.scheme == "http" and not self._networks.is_private(address):
            raise ConfigurationError(
                f"{self._name} is http, and {address} is in no network of webhook_networks: use https"
            )
        async with (
            httpx.AsyncClient(trust_env=False, timeout=_TIMEOUT_S, verify=self._tls) as client,
            pinned_stream(client, "GET", url, address, headers={"prefer": f"wait={_WAIT_S}"}) as response,
        ):
            if response.status_code == 404:
                raise SourceLostError(f"{self._name}: there is no such channel or subscription")
            if response.status_code != 200:
                raise DependencyError(f"{self._name} answered {response.status_code}")
            body = bytearray()
            async for part in response.aiter_bytes():
                body += part
                if len(body) > _MOST_BYTES:
                    raise DependencyError(f"{self._name}: a page has more than {_MOST_BYTES} bytes")
            return bytes(body)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()


def _placed(page: Mapping[str, Any]) -> Iterator[tuple[tuple[int, int], Incoming]]:
    """Yield each result of a page with its place: run and number. Raises ValueError, KeyError, TypeError for another page."""
    for entry in page["runs"]:
        for result in entry["results"]:
            place = int(entry["run"]), int(result["number"])
            yield place, Incoming(json.dumps(result["result"]).encode(), json.dumps(place))
