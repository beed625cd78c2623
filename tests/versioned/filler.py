"""Process that fills a table from a collection: `python -m tests.versioned.filler URL DATABASE FOLDER DIE_AT`.

With DIE_AT >= 0 the process kills itself around a change of the storage, see writer.py. A closed input ends the process.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pymongo

from quaestor.tables.catalogue import Catalogue
from quaestor.tables.collections import FollowedCollection
from quaestor.tables.storage import FolderStorage
from tests.versioned.writer import Dying


class DyingFolder(Dying):
    """Folder whose tables all share one count of changes."""

    def below(self, folder: str) -> DyingFolder:
        """Return the storage below this one."""
        lower = DyingFolder(self._inner.below(folder), self._die_at)
        lower._moment = self._moment  # type: ignore[method-assign]
        return lower


def main(url: str, database: str, folder: str, die_at: int) -> None:
    """Fill; see the module's text."""
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    root = FolderStorage(Path(folder))
    with pymongo.MongoClient(url) as client:
        catalogue = Catalogue(root)
        if die_at >= 0 and catalogue.names():
            catalogue.open("items").table.storage = DyingFolder(catalogue.open("items").table.storage, die_at)  # type: ignore[assignment]
        print("ready", flush=True)
        FollowedCollection(client[database].items, catalogue, "items").run(stop)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
