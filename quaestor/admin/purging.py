"""Manual purges of cached entries, whether a query guards them or only their own lifetime does."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from quaestor.app import Quaestor
from quaestor.errors import ConfigurationError
from quaestor.read_path.unsafe_invalidation import Outdated


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """Names of the entries to purge.

    urls: names of `registered_urls.url_name`.
    collections: `database.collection`, `database.*`.
    groups: cache groups (RFC 9875), by (origin, name).
    all: every entry.
    """

    tags: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    collections: tuple[str, ...] = ()
    groups: tuple[tuple[str, str], ...] = ()
    all: bool = False

    def summary(self) -> dict[str, Any]:
        """Number of names of each kind."""
        return {
            "tags": len(self.tags),
            "urls": len(self.urls),
            "collections": len(self.collections),
            "groups": len(self.groups),
            "all": self.all,
        }


class Purger:
    """Purger of entries in every cache. Other processes, CDNs and the Cache Sketch receive a purge as they receive writes."""

    def __init__(self, quaestor: Quaestor) -> None:
        self._quaestor = quaestor

    async def purge(self, purge: Purge) -> None:
        """Purge; returns once the purge is on its way everywhere, and entries without queries are gone from this process.

        Raises ConfigurationError for names that cannot be purged here, DependencyError if a part did not answer: call it again.
        """
        watching = self._quaestor.settings.grid.enabled
        if not watching and (purge.tags or purge.collections):
            raise ConfigurationError(
                "no MongoDB is watched here, so nothing depends on tags or collections: purge urls, groups or all"
            )
        entries = self._quaestor.read_path.explicit
        by_origin: dict[str, list[str]] = defaultdict(list)
        for origin, name in purge.groups:
            by_origin[origin].append(name)
        for origin, names in by_origin.items():
            await entries.outdate(Outdated(groups=tuple(names)), url_origin=origin)
        if purge.urls:
            await entries.outdate(Outdated(keys=purge.urls), url_origin="")
        if purge.all:
            await entries.outdate_everything()
        collections = ("*.*",) if purge.all else purge.collections
        if watching and (purge.tags or purge.urls or collections):
            await self._quaestor.invalidate(tags=purge.tags, urls=purge.urls, collections=collections)
