"""A CDN in this process's memory: the in-memory implementation of the port `CdnAdapter`, for tests and local development.

The caller stores the responses that a CDN would have stored, and sees which of them purges leave.

    cdn = MemoryCdn()
    adapter = MemoryAdapter(cdn)                     # middleware: cdn=[adapter]
    cdn.store("https://a.example/x", adapter.response_headers(["flights"]))
    await adapter.purge(tags=["flights"], urls=[])
    assert "https://a.example/x" not in cdn
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from quaestor.cdn_adapters.answers import Answer, Delivered
from quaestor.cdn_adapters.batching import BatchLimits, PurgeEvent
from quaestor.cdn_adapters.capabilities import UNBOUNDED, Capabilities, TagField
from quaestor.cdn_adapters.delivery import Delivery
from quaestor.cdn_adapters.place import TAG, URL, Connection, Target, cheapest_targets
from quaestor.cdn_adapters.spelling import absolute_url
from quaestor.cdn_adapters.tag_field import tag_headers
from quaestor.errors import CdnError

_HEADER = b"surrogate-key"


class MemoryCdn:
    """URLs that a CDN keeps, with their tags. Implements Place: a purge is effective at once. O(objects) a batch.

    outage: error that purges raise while it is set: the CDN is away.
    purged: every purged target, in order.
    """

    name = "memory"
    capabilities = Capabilities(
        kinds=(TAG, URL),
        batch={TAG: UNBOUNDED, URL: UNBOUNDED},
        tag_field=TagField(name="surrogate-key", budget_bytes=UNBOUNDED),
    )

    def __init__(self, address: str = "memory") -> None:
        self.address = address
        self.outage: CdnError | None = None
        self.purged: list[Target] = []
        self._tags_by_url: dict[str, frozenset[str]] = {}

    def __len__(self) -> int:
        return len(self._tags_by_url)

    def __contains__(self, url: str) -> bool:
        return url in self._tags_by_url

    def store(self, url: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Keep a response under its absolute URL, with the tags in its headers."""
        named = b" ".join(value for name, value in headers if name.lower() == _HEADER)
        self._tags_by_url[absolute_url(url)] = frozenset(named.decode("ascii").split())

    def response_headers(self, tags: Sequence[str]) -> list[tuple[bytes, bytes]]:
        """Return `Surrogate-Key`, with tags separated by blanks."""
        return tag_headers(self.capabilities.tag_field, tags)

    def targets(self, *, tags: Sequence[str], urls: Sequence[str]) -> list[Target]:
        """Return the tags if there are some, else the URLs."""
        return cheapest_targets(self.capabilities, tags=tags, urls=urls)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        """See Place."""
        yield self

    async def send(self, targets: Sequence[Target]) -> Answer:
        """See Connection."""
        if self.outage is not None:
            raise self.outage
        for target in targets:
            self._remove(target)
        return Delivered()

    async def completed(self, ticket: str) -> Answer:
        """See Connection; never called, as purges are effective at once."""
        return Delivered()

    def _remove(self, target: Target) -> None:
        self.purged.append(target)
        if target.by == URL:
            self._tags_by_url.pop(target.value, None)
        else:
            self._tags_by_url = {url: tags for url, tags in self._tags_by_url.items() if target.value not in tags}


class MemoryAdapter(Delivery):
    """CdnAdapter for a MemoryCdn, with the same delivery as any other place. Fields: see Delivery.

    cdn: a new one if None.
    """

    def __init__(
        self,
        cdn: MemoryCdn | None = None,
        *,
        limits: BatchLimits | None = None,
        observe: Callable[[PurgeEvent], None] = lambda event: None,
    ) -> None:
        self.cdn = MemoryCdn() if cdn is None else cdn
        super().__init__(self.cdn, limits=limits, observe=observe)
