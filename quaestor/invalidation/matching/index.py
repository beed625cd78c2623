"""Query index: finds the filters that a written record could satisfy, without a look at the others.

Each filter is kept under one access path (planning/access_paths.py), or under one for each branch of a disjunction. Every
write tries the filters without an access path. The index proposes a superset of the matching filters, never less; the predicate
decides. The cost of a search grows with the paths in use (or the record's fields, if those are fewer) and with the
candidates. The cost does not grow with the number of filters. The design is the presearcher of Lucene's Monitor, for records
instead of texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from quaestor.invalidation.matching.compact_set import CompactSet, added, removed, size
from quaestor.invalidation.matching.entities import Filter, FilterSlot
from quaestor.invalidation.matching.path_index import PathIndex
from quaestor.invalidation.matching.tokens import TokenIndex
from quaestor.invalidation.matching.values import reachable
from quaestor.planning.access_combination import distinct_entries
from quaestor.planning.access_entries import (
    POINT,
    SELECTIVE,
    Access,
    AnyOf,
    Entry,
    Equality,
    Negative,
    Tokens,
    entries_of,
    hash_key,
    names_ids,
)
from quaestor.query.text import TextIndex

_CROWDED: Final = 32
"""Number of filters under one entry from which another access path may be better."""


class QueryIndex:
    """Filters of one namespace, by access path. Incremental; not thread-safe."""

    __slots__ = ("_always", "_by_field", "_filters", "_nulls", "_paths", "_texts")

    def __init__(self) -> None:
        self._paths: dict[str, PathIndex] = {}
        self._by_field: dict[str, list[PathIndex]] = {}
        self._nulls: dict[PathIndex, int] = {}
        self._texts: dict[TextIndex, TokenIndex] = {}
        self._always: FilterSlot | None = None
        self._filters = 0

    def __len__(self) -> int:
        return self._filters

    @property
    def always(self) -> int:
        """Number of filters that every write tries."""
        return size(self._always)

    def add(self, item: Filter, alternatives: Sequence[Access]) -> None:
        """Keep the filter under its best access path at present, and note that path in `item.access`."""
        self._filters += 1
        item.access = self._choose(alternatives)
        if item.access is None:
            self._always = added(self._always, item)
            return
        for entry in entries_of(item.access):
            if isinstance(entry, Tokens):
                if entry.index not in self._texts:
                    self._texts[entry.index] = TokenIndex(entry.index)
                self._texts[entry.index].add(entry, item)
                continue
            path = self._at(entry.path)
            path.add(entry, item)
            if _allows_nothing(entry):
                self._nulls[path] = self._nulls.get(path, 0) + 1

    def remove(self, item: Filter) -> None:
        """Forget a filter that was added before."""
        self._filters -= 1
        if item.access is None:
            self._always = removed(self._always, item)
            return
        for entry in entries_of(item.access):
            if isinstance(entry, Tokens):
                self._texts[entry.index].remove(entry, item)
                if not self._texts[entry.index].filters:
                    del self._texts[entry.index]
                continue
            path = self._paths[entry.path]
            path.remove(entry, item)
            if _allows_nothing(entry):
                self._nulls[path] -= 1
                if not self._nulls[path]:
                    del self._nulls[path]
            if not path.filters:
                self._drop(path)

    def candidates(self, record: Mapping[str, Any]) -> list[Filter]:
        """Return every filter that `record` could satisfy; a filter may occur twice."""
        slots: list[FilterSlot] = []
        by_field = self._by_field
        for name in by_field if len(by_field) <= len(record) else record:
            if name in record and name in by_field:
                value = record[name]
                plain = value.__class__ in _SCALARS
                for path in by_field[name]:
                    try:
                        if plain and path.whole_field:
                            path.find_one(value, slots)
                        else:
                            _look(path, record, slots)
                    except Exception:
                        # A value that cannot be ordered or hashed: one bad record must not hide a match.
                        slots.extend(path.everything())
        for path in self._nulls:
            if path.parts[0] not in record:
                path.find_missing(slots)
        for texts in self._texts.values():
            try:
                texts.find(record, slots)
            except Exception:
                slots.extend(texts.everything())
        if self._always is not None:
            slots.append(self._always)
        return _flat(slots)

    def naming(self, key: Any) -> list[Filter]:
        """Return the filters that name this `_id` and are kept by it. O(those filters)."""
        path = self._paths.get("_id")
        if path is None:
            return []
        try:
            slot = path.equal.get(hash_key(key))
        except Exception:  # a value that cannot be ordered or hashed, as in `candidates`
            return _flat(path.everything())
        return [] if slot is None else _flat([slot])

    def _choose(self, alternatives: Sequence[Access]) -> Access | None:
        """Return the best access path by kind. Among point look-ups the least loaded wins; if those are crowded, among all.

        Named `_id`s exclude more writes than other paths (see Filter.by_id), so they come first unless they are crowded.
        """
        if not alternatives:
            return None
        if any(isinstance(access, AnyOf) for access in alternatives):
            alternatives = list(map(self._resolved, alternatives))
        if len(alternatives) == 1:
            return alternatives[0]
        if names_ids(alternatives[0]) and self._load(alternatives[0]) < _CROWDED:
            return alternatives[0]
        for limit in (POINT, SELECTIVE):
            loads = [(self._load(access), place) for place, access in enumerate(alternatives) if access.cost <= limit]
            if loads:
                load, place = min(loads)
                if load < _CROWDED or limit == SELECTIVE:
                    return alternatives[place]
        return alternatives[0]

    def _resolved(self, access: Access) -> Access:
        """Return the access path with one alternative of each branch of a disjunction, chosen as if it were a filter's."""
        if not isinstance(access, AnyOf) or not access.choices:
            return access
        entries = distinct_entries(chosen for choice in access.choices if (chosen := self._choose(choice)) is not None)
        return entries[0] if len(entries) == 1 else AnyOf(entries)

    def _load(self, access: Access) -> int:
        """Return roughly how many other filters a search finds together with a filter kept there."""
        return sum(map(self._load_of, entries_of(access)))

    def _load_of(self, entry: Entry) -> int:
        if isinstance(entry, Tokens):
            return self._texts[entry.index].load(entry) if entry.index in self._texts else 0
        return self._paths[entry.path].load(entry) if entry.path in self._paths else 0

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


def _look(path: PathIndex, record: Mapping[str, Any], candidates: list[FilterSlot]) -> None:
    values, plain = reachable(record, path.parts)
    if not plain:
        path.find_many(record, values, candidates)
    elif values:
        path.find_one(values[0], candidates)
    else:
        path.find_missing(candidates)


def _flat(slots: list[FilterSlot]) -> list[Filter]:
    filters: list[Filter] = []
    for slot in slots:
        if isinstance(slot, CompactSet):
            filters.extend(slot)
        else:
            filters.append(slot)
    return filters


_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


def _allows_nothing(entry: Entry) -> bool:
    """Whether a record without the path may satisfy the entry."""
    return isinstance(entry, Negative) or (isinstance(entry, Equality) and None in entry.keys)
