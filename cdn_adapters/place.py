"""One place that keeps copies: the part of an adapter that differs by provider.

A place is one Varnish, or one CDN's API. The place declares its abilities (`Capabilities`), spells requests and interprets their
answers. Queues, batches, pace, retries and fan-out are composed around any place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from quaestor.cdn_adapters.answers import Answer
from quaestor.cdn_adapters.capabilities import EVERYTHING, PREFIX, TAG, URL, Capabilities
from quaestor.cdn_adapters.spelling import absolute_url
from quaestor.cdn_adapters.tag_field import spelled

__all__ = ["EVERYTHING", "PREFIX", "TAG", "URL", "Connect", "Connection", "Place", "Send", "Target", "cheapest_targets"]


class Target(NamedTuple):
    """The objects to remove: objects with a tag, under a URL, under all URLs with a prefix, or all.

    by: TAG, URL, PREFIX or EVERYTHING.
    value: spelled as the place wants it, so equal targets are equal values; empty for EVERYTHING.
    """

    by: str
    value: str


class Connection(Protocol):
    """An open connection to a place, or a pool of them. Raises CdnError, retryable, if the place did not answer.

    A place with rates receives one batch at a time. A place without rates receives several side by side
    (`requests.SIDE_BY_SIDE` at most). Two of these may name the same target: each is purged between its call and its answer,
    in any order of arrival.
    """

    async def send(self, targets: Sequence[Target]) -> Answer:
        """Purge a batch: of one kind, within `Capabilities.batch` and `batch_bytes`. Purging a target twice is harmless."""

    async def completed(self, ticket: str) -> Answer:
        """Return the outcome of an accepted batch: Accepted again while it is under way. Called only for asynchronous places."""


Send = Callable[[Sequence[Target]], Awaitable[None]]
"""Purges targets of any kinds and number; returns when the place has taken all of them, raises CdnError otherwise."""
Connect = Callable[[], AbstractAsyncContextManager[Send]]
"""Opened once per event loop, and closed when the deliveries end."""


class Place(Protocol):
    """Place where copies are kept and can be purged. Used from one event loop at a time. Batches at a time: see Connection.

    name: of the provider, for metrics: CdnAdapter.name.
    address: of this place among others of its kind, in errors, events and names of queues; without a secret.
    capabilities: its abilities; constant.
    """

    name: str
    address: str
    capabilities: Capabilities

    def response_headers(self, tags: Sequence[str]) -> list[tuple[bytes, bytes]]:
        """Return the headers that make this place remember the tags of a response. The same for all places of one name.

        Usually `tag_headers(capabilities.tag_field, tags)`.
        """

    def targets(self, *, tags: Sequence[str], urls: Sequence[str]) -> list[Target]:
        """Return the targets of one purge, of the cheapest kind that this place supports. Pure. Usually `cheapest_targets`.

        Raises CdnError, not retryable, for targets that cannot be purged here.
        """

    def connect(self) -> AbstractAsyncContextManager[Connection]:
        """Open a connection to the place, for the duration of the block."""


def cheapest_targets(capabilities: Capabilities, *, tags: Sequence[str], urls: Sequence[str]) -> list[Target]:
    """Return the targets of one purge, by the first of the place's kinds that can express the purge.

    URLs need URLs, tags need tags. Everything is purged for tags that belong to no URL, in a place without tags. The result is
    empty if no kind fits. Raises CdnError, not retryable, for a malformed URL.
    """
    field = capabilities.tag_field
    for kind in capabilities.kinds:
        if kind == TAG and tags and field is not None:
            return list(dict.fromkeys(Target(TAG, spelled(field, tag)) for tag in tags))
        if kind == URL and urls:
            return list(dict.fromkeys(Target(URL, _told_apart(capabilities, absolute_url(url))) for url in urls))
        if kind == EVERYTHING and tags and not urls:
            return [Target(EVERYTHING, "")]
    return []


def _told_apart(capabilities: Capabilities, url: str) -> str:
    """Return the URL without the parts that the place ignores."""
    base = url.partition("?")[0] if capabilities.url_ignores_query else url
    return base.lower() if capabilities.url_ignores_case else base
