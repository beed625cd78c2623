"""From a written record to the filters that it could satisfy, without looking at the others.

Each filter is kept under one access path (see access.py), or under all branches of a disjunction; those without any are
always tried. The index proposes a superset of what matches, never less: the predicate has the last word. The cost of a
search grows with the paths in use (or the record's fields, whichever are fewer) and with what is found, not with the
number of filters. This is the presearcher of Lucene's Monitor, for records instead of texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from quaestor.invalidation.matching.access import Access, AnyOf, Entry
from quaestor.invalidation.matching.bucket import Bucket, added, removed, size
from quaestor.invalidation.matching.path_index import PathIndex
from quaestor.invalidation.matching.registered import Filter
from quaestor.invalidation.matching.values import reachable

Slot = Filter | Bucket[Filter]

_CROWDED: Final = 32
"""From this many filters on under one entry, another access path may be the better one."""


class QueryIndex:
    """The filters of one namespace. Incremental; not thread-safe."""

    __slots__ = ("_always", "_by_field", "_filters", "_nulls", "_paths")

    def __init__(self) -> None:
        self._paths: dict[str, PathIndex] = {}
        self._by_field: dict[str, list[PathIndex]] = {}
        self._nulls: dict[PathIndex, int] = {}
        self._always: Slot | None = None
        self._filters = 0

    def __len__(self) -> int:
        return self._filters

    @property
    def always(self) -> int:
        """How many filters every write has to try."""
        return size(self._always)

    def add(self, item: Filter, alternatives: Sequence[Access]) -> None:
        """Keep the filter under the best of its access paths as things stand; remembers which in `item.access`."""
        self._filters += 1
        item.access = self._choose(alternatives)
        if item.access is None:
            self._always = added(self._always, item)
            return
        for entry in _entries(item.access):
            self._at(entry.path).add(entry, item)
            if _wants_null(entry):
                path = self._paths[entry.path]
                self._nulls[path] = self._nulls.get(path, 0) + 1

    def remove(self, item: Filter) -> None:
        """Forget a filter that was added before."""
        self._filters -= 1
        if item.access is None:
            self._always = removed(self._always, item)
            return
        for entry in _entries(item.access):
            path = self._paths[entry.path]
            path.remove(entry, item)
            if _wants_null(entry):
                self._nulls[path] -= 1
                if not self._nulls[path]:
                    del self._nulls[path]
            if not path.filters:
                self._drop(path)

    def candidates(self, record: Mapping[str, Any]) -> list[Filter]:
        """Every filter that `record` could satisfy; one may be listed twice."""
        found: list[Slot] = []
        if len(self._by_field) <= len(record):
            for name, paths in self._by_field.items():
                if name in record:
                    _look(paths, record, found)
        else:
            for name in record:
                if name in self._by_field:
                    _look(self._by_field[name], record, found)
        for path in self._nulls:
            if path.parts[0] not in record:
                path.find_missing(found)
        if self._always is not None:
            found.append(self._always)
        candidates: list[Filter] = []
        for slot in found:
            if isinstance(slot, Bucket):
                candidates.extend(slot)
            else:
                candidates.append(slot)
        return candidates

    def _choose(self, alternatives: Sequence[Access]) -> Access | None:
        """The first, unless it is crowded and a later one is not as much."""
        best: Access | None = None
        lowest = size(self._always)
        for access in alternatives:
            load = sum(self._load(entry) for entry in _entries(access))
            if best is None or load < lowest:
                best, lowest = access, load
            if lowest < _CROWDED:
                break
        return best

    def _load(self, entry: Entry) -> int:
        path = self._paths.get(entry.path)
        return 0 if path is None else path.load(entry)

    def _at(self, name: str) -> PathIndex:
        if name not in self._paths:
            path = self._paths[name] = PathIndex(name)
            self._by_field.setdefault(path.parts[0], []).append(path)
        return self._paths[name]

    def _drop(self, path: PathIndex) -> None:
        del self._paths[path.path]
        siblings = self._by_field[path.parts[0]]
        siblings.remove(path)
        if not siblings:
            del self._by_field[path.parts[0]]


def _look(paths: list[PathIndex], record: Mapping[str, Any], found: list[Slot]) -> None:
    for path in paths:
        mark = len(found)
        try:
            _look_one(path, record, found)
        except Exception:
            # A value that cannot be ordered or hashed: one bad record must not hide a match.
            del found[mark:]
            found.extend(path.everything())


def _look_one(path: PathIndex, record: Mapping[str, Any], found: list[Slot]) -> None:
    parts = path.parts
    if len(parts) == 1:
        value = record[parts[0]]
        if value.__class__ in _SCALARS:
            path.find_one(value, found)
            return
    values, plain = reachable(record, parts)
    if not plain:
        path.find_many(values, found)
    elif values:
        path.find_one(values[0], found)
    else:
        path.find_missing(found)


_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


def _entries(access: Access) -> tuple[Entry, ...]:
    return access.members if isinstance(access, AnyOf) else (access,)


def _wants_null(entry: Entry) -> bool:
    return None in getattr(entry, "keys", ())
