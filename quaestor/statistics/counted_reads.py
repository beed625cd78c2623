"""Counted reads of a pipeline: entries trimmed before they were read are not only detected but counted.

Redis 7 and Valkey count the entries ever appended to a stream. With its length that gives the number of the oldest retained
entry. A reader that numbers its entries therefore knows exactly how many it missed. Older servers do not count; a reader
then knows only that entries may be missing.
"""

from __future__ import annotations

from typing import NamedTuple

from quaestor.errors import EventLayerError
from quaestor.event_layer import offsets
from quaestor.event_layer.redis_pipelines import RedisPipelines
from quaestor.event_layer.redis_requests import offset
from quaestor.ports import StreamEntry


class Chunk(NamedTuple):
    """Entries of one read, and whether some are missing before them.

    broken: the position read from is no longer retained (or was no entry), so entries may be missing before the first.
    before: in that case, the number of entries ever appended before the oldest retained one; None if the server does not count.
    """

    entries: list[StreamEntry]
    broken: bool
    before: int | None


def read_counted(layer: RedisPipelines, stream: str, after: str, *, count: int) -> Chunk:
    """Return entries after this offset, at most `count`, without waiting. O(entries).

    Raises EventLayerError, and EventLayerResetError if the offset is from another life of the data.
    """
    entry_id = layer.entry_id(after)
    replies = layer.request(
        stream,
        ("MULTI",),
        ("XINFO", "STREAM", stream),
        ("XRANGE", stream, f"({entry_id}" if after != offsets.START else "-", "+", "COUNT", count),
        ("EXEC",),
    )
    description, reply = replies[-1]
    if isinstance(reply, Exception):
        raise EventLayerError(f"{stream} cannot be read: {reply}") from reply
    if isinstance(description, Exception) or not reply:
        return Chunk([], False, None)  # there is no such pipeline (yet), or no new entry in it
    epoch = layer.epoch()
    facts = dict(zip(description[::2], description[1::2], strict=True))
    first = offset(facts[b"first-entry"][0], epoch)
    entries = [StreamEntry(stream, offset(entry, epoch), fields[1]) for entry, fields in reply]
    if after != offsets.START and first <= after:
        return Chunk(entries, False, None)
    appended = facts.get(b"entries-added")
    return Chunk(entries, True, None if appended is None else int(appended) - int(facts[b"length"]))
