"""One place that keeps copies, as deliveries see it: all that the adapter of one provider has to say for itself.

A place is one Varnish, or one CDN's API. It knows how its requests are spelled and when one was a success; queues, batches,
retries and fan-out are `delivery.py` and `fan_out.py`, which compose around any place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

TAG, URL = "tag", "url"
"""Values of Target.by."""


class Target(NamedTuple):
    """The objects to remove: those with a tag, or those under a URL.

    by: TAG or URL.
    value: spelled as the place wants it, so equal targets are equal values.
    """

    by: str
    value: str


Send = Callable[[Sequence[Target]], Awaitable[None]]
"""Purges a batch; returns when it is effective, raises CdnError otherwise. Purging a target twice is harmless."""
Connect = Callable[[], AbstractAsyncContextManager[Send]]
"""Opened once per event loop, and closed when the deliveries end."""


class Place(Protocol):
    """Somewhere that copies are kept and can be purged. Used from one event loop at a time, for one batch at a time.

    name: of the provider, for metrics: CdnAdapter.name.
    address: of this place among others of its kind, in errors and events.
    """

    name: str
    address: str

    def response_headers(self, tags: Sequence[str]) -> list[tuple[bytes, bytes]]:
        """Headers that make this place remember the tags of a response. The same for all places of one name."""

    def targets(self, *, tags: Sequence[str], urls: Sequence[str]) -> list[Target]:
        """The targets of one purge, by tag or by URL, whichever this place can. Pure.

        Raises CdnError that is not retryable for what cannot be purged here.
        """

    def connect(self) -> AbstractAsyncContextManager[Send]:
        """Connections to the place, for as long as the block lasts: see Connect and Send."""
