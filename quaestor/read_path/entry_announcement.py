"""Announcement of entries: the dependency index and the Cache Sketch know of an entry before anyone holds it."""

from __future__ import annotations

import asyncio

from quaestor.errors import SketchError, StoreError
from quaestor.model import CachedResponse
from quaestor.observability.telemetry import Telemetry
from quaestor.read_path.decision import Event
from quaestor.read_path.entries import COPY_SLACK_MS, Verdict, dependent, sketch_name
from quaestor.read_path.entry_publication import EntryPublication
from quaestor.read_path.local_store import EntryStorage
from quaestor.read_path.refresh import EarlyRefresh
from quaestor.read_path.usability import Usability
from quaestor.store.memory import Resident, first_copies_until_ms

MAX_URLS = 16
"""Spellings of one entry's URL that may go out as keepable copies: each one has to be purged."""


class EntryAnnouncement:
    """Reports entries to the dependency index and the sketch; one per read path. Use from one event loop.

    publication: takes back an entry whose announcement failed.
    """

    def __init__(
        self,
        storage: EntryStorage,
        usability: Usability,
        publication: EntryPublication,
        early: EarlyRefresh,
        telemetry: Telemetry,
    ) -> None:
        self.publication = publication
        self._index = storage.index
        self._sketch = storage.sketch
        self._alone = storage.leases is None
        self._usability = usability
        self._early = early
        self._telemetry = telemetry

    async def register_url(self, resident: Resident, url: str) -> bool:
        """Allow copies of this entry under this URL, by adding the URL to the dependency index first.

        False: copies must be forbidden, or the entry has died meanwhile (look it up again).
        """
        response, urls = resident.response, (url,)
        if len(resident.urls) >= MAX_URLS:
            return False
        try:
            await self._index.add(dependent(response, urls))
        except StoreError as error:
            self._telemetry.failure("store", "read_path.index_failed", error)
            return False
        resident.note_urls(urls)
        return self._usability.servable(response)

    async def announce(self, response: CachedResponse, url: str, *, leave: bool) -> Verdict:
        """Add an entry to index and sketch before it enters the store, from where it is served at once."""
        urls = (url,)
        try:
            if leave:
                until_ms, now_ms = first_copies_until_ms(response) + COPY_SLACK_MS, response.stored_at_ms
                indexed, name = dependent(response, urls), sketch_name(response)
                if self._alone:
                    # In this process's memory neither call waits, and tasks would be most of the work.
                    await self._index.add(indexed)
                    await self._sketch.report_read(name, expires_at_ms=until_ms, now_ms=now_ms)
                else:
                    reported = self._sketch.report_read(name, expires_at_ms=until_ms, now_ms=now_ms)
                    await asyncio.gather(self._index.add(indexed), reported)
            else:
                await self._index.add(dependent(response, ()))
        except (StoreError, SketchError) as error:
            part = "sketch" if isinstance(error, SketchError) else "store"
            self._telemetry.failure(part, f"read_path.{part}_failed", error)
            await self.publication.undo(response, acknowledged=False)
            return Verdict(event=Event.PART_FAILED, reasons=("failed",), detail=str(error))
        if not self._usability.servable(response):
            await self.publication.undo(response, acknowledged=True)
            return Verdict(event=Event.DIED, reasons=("died",), detail="invalidated while it was being stored")
        resident = Resident(response)
        resident.note_urls(urls)
        return Verdict(event=Event.KEPT, resident=self._early.settle(resident))
