"""Watches on entries: a follower of an entry learns at once that the entry has died."""

from __future__ import annotations

from collections.abc import Callable, Iterable

Wake = Callable[[], None]


class EntryWatches:
    """Callbacks by the names of what guards an entry: ids of registrations, labels. Use from one event loop. O(1) a name."""

    def __init__(self) -> None:
        self._wakes: dict[str, dict[Wake, None]] = {}

    def watch(self, names: Iterable[str], wake: Wake) -> None:
        """Call `wake` whenever one of these dies, until unwatch()."""
        for name in names:
            self._wakes.setdefault(name, {})[wake] = None

    def unwatch(self, names: Iterable[str], wake: Wake) -> None:
        """End a watch. No error if there is none."""
        for name in names:
            wakes = self._wakes.get(name)
            if wakes is not None:
                wakes.pop(wake, None)
                if not wakes:
                    del self._wakes[name]

    def died(self, names: Iterable[str]) -> None:
        """Wake every watcher of these names. The registry refuses what they guard already."""
        if not self._wakes:
            return
        for name in names:
            for wake in tuple(self._wakes.get(name, ())):
                wake()

    def __len__(self) -> int:
        """Number of watched names."""
        return len(self._wakes)
