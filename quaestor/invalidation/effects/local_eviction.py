"""Local eviction: what this process's memory drops when it is told of an invalidation, whoever made the registrations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quaestor.ports import Guarded
from quaestor.read_path.service import ReadPath


class LocalEviction:
    """Eviction from one process's memory, by ids of registrations and by labels of entries. On the event loop.

    drop_guarded: drops what these registrations guard from memory, and returns it.
    """

    def __init__(self, read_path: ReadPath, drop_guarded: Callable[[Sequence[str]], Sequence[Guarded]]) -> None:
        self._read_path = read_path
        self._drop_guarded = drop_guarded

    def evict(self, names: Sequence[str]) -> Sequence[Guarded]:
        """Drop what these stand for; returns what registrations guarded. What this process registered under an outdated label
        dies everywhere."""
        self._read_path.missing_reads.changed(names)
        explicit = self._read_path.explicit
        registrations = explicit.outdate_here(names)
        if registrations:
            self._read_path.coalescing.spawn(explicit.tell(registrations))
        return self._drop_guarded(names)
