"""Local eviction: entries that this process drops from its memory after an invalidation of any process's registrations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quaestor.ports import Guarded
from quaestor.read_path.service import ReadPath


class LocalEviction:
    """Eviction from one process's memory by ids of registrations and labels of entries. Use on the event loop.

    drop_guarded: drops entries of these registrations from memory, and returns them.
    """

    def __init__(self, read_path: ReadPath, drop_guarded: Callable[[Sequence[str]], Sequence[Guarded]]) -> None:
        self._read_path = read_path
        self._drop_guarded = drop_guarded

    def evict(self, names: Sequence[str]) -> Sequence[Guarded]:
        """Drop the entries behind these names; return the entries that registrations guarded.

        Registrations that this process made under an outdated label die in every process.
        """
        self._read_path.admission.earlier.missing_reads.changed(names)
        explicit = self._read_path.explicit
        registrations = explicit.outdate_here(names)
        if registrations:
            self._read_path.coalescing.spawn(explicit.tell(registrations))
        dropped = self._drop_guarded(names)
        self._read_path.lookup.watches.died(names)
        return dropped
