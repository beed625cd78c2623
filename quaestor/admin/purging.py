"""Manual purges: of entries that queries guard, and of entries that only their own lifetime guards."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from quaestor.app import Quaestor
from quaestor.errors import ConfigurationError
from quaestor.read_path.unsafe_invalidation import Outdated


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """Names of what is to be purged.

    urls: names of `registered_urls.url_name`.
    collections: `database.collection`, `database.*`.
    groups: RFC 9875, by (origin, name).
    all: everything.
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
    """Purger of what is cached anywhere: other processes, CDNs and the Cache Sketch hear of it as they hear of writes."""

    def __init__(self, quaestor: Quaestor) -> None:
        self._quaestor = quaestor

    async def purge(self, purge: Purge) -> None:
        """Purge; returns when it is on its way everywhere; in this process, entries without queries are gone then.

        Raises ConfigurationError for what cannot be purged here, DependencyError if a part did not answer: then call it again.
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
