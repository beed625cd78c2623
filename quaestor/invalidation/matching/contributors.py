"""Contributors of a result that does not show them: counted records, holders of distinct values, skipped records.

Contributors are kept as hashes, for this write partition. A write may change the contributors and leave the result as it is
(`Counted`, `Holders`). There the contributors follow the writes; a repeated write is followed once. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import bson
from xxhash import xxh3_128_digest

from quaestor.incremental.expansion import distinct_values
from quaestor.invalidation.matching.places import Places
from quaestor.invalidation.matching.values import reachable
from quaestor.model import Contributors, Document, MatchType, Query
from quaestor.planning.member_digests import look_the_same, member_digest
from quaestor.planning.plan_parts import Result, Window
from quaestor.planning.relevant_fields import Fields
from quaestor.planning.rules import Rules
from quaestor.query.bson_order import order_key
from quaestor.query.encoding import OPTIONS
from quaestor.query.paths import is_array
from quaestor.query.sorting import SortKey, sort_key

_COUNTED: Final = 130
_HOLDER: Final = 400
_INPUT: Final = 130
_SHOWN: Final = 146
_MISSING: Final = b""
_ARRAY: Final = b"["
_ODD: Final = b"?"
"""Marks that no digest equals: a digest is BSON, which begins with its length."""


class Counted:
    """Records of a bounded count that no single record decides: the limit is reached, or all records are skipped.

    spare: number of records that may leave (or come) before the count changes. The cells of a query partition share it,
        because no cell knows the writes of the others.
    """

    __slots__ = ("_full", "_ids", "spare")

    def __init__(self, ids: Iterable[int], *, full: bool, spare: int) -> None:
        self._ids = set(ids)
        self._full = full
        self.spare = spare

    @property
    def bytes(self) -> int:
        """Estimated memory in bytes."""
        return _COUNTED * len(self._ids)

    def change(self, identity: int, after: bool) -> MatchType | None:
        """Follow one write; return the change of the count, or None."""
        if (identity in self._ids) is after:
            return None
        (self._ids.add if after else self._ids.discard)(identity)
        self.spare += 1 if after is self._full else -1
        return None if self.spare >= 0 else MatchType.ADD if after else MatchType.REMOVE


class Holders:
    """Records that hold the values of a distinct.

    Values differ if their bytes differ. The database takes 1 and 1.0 for one value, and shows the form that it meets first.
    """

    __slots__ = ("_held", "_holders", "_known", "_path")

    def __init__(self, path: str, held: Mapping[int, frozenset[bytes]], known: frozenset[bytes]) -> None:
        self._path = path
        self._held = dict(held)
        self._known = known
        self._holders = Counter(value for values in held.values() for value in values)

    @property
    def bytes(self) -> int:
        """Estimated memory in bytes."""
        return _HOLDER * (len(self._held) + len(self._known))

    def change(self, identity: int, record: Document | None) -> MatchType | None:
        """Follow one write; return the change of the values, or None.

        record: the record after the write, if it matches.
        """
        before = self._held.pop(identity, frozenset())
        after = frozenset() if record is None else _held(record, self._path)
        if after:
            self._held[identity] = after
        self._holders.update(after - before)
        self._holders.subtract(before - after)
        if not after <= self._known:
            return MatchType.ADD
        lost = before - after - {_ARRAY}  # an index that has seen an array stays as it is
        return MatchType.REMOVE if any(self._holders[value] <= 0 for value in lost) else None


class Inputs:
    """Records from which a result is computed, with digests of the fields that it reads.

    The digests need not follow the writes: a record that comes, goes or changes in these fields ends the result.
    """

    __slots__ = ("_fields", "_seen")

    def __init__(self, seen: Mapping[int, bytes], fields: Fields) -> None:
        self._seen = dict(seen)
        self._fields = fields

    @property
    def bytes(self) -> int:
        """Estimated memory in bytes, beside that of members."""
        return _INPUT * len(self._seen)

    def change(self, identity: int, record: Document | None) -> MatchType | None:
        """Return the change of the fields that the result reads, or None.

        record: the record after the write, if it matches.
        """
        before = self._seen.get(identity)
        if record is None:
            return None if before is None else MatchType.REMOVE
        if before is None:
            return MatchType.ADD
        return None if before == seen_digest(self._fields, record) else MatchType.CHANGE


def seen_digest(fields: Fields, record: Document) -> bytes:
    """Return a digest of the fields of a record that matter."""
    return xxh3_128_digest(fields.seen(record))


class Shown:
    """Members of a result, with digests of their look and place.

    The digests need not follow the writes: a member that goes, moves or changes its look ends the result.

    places: place of each member, if the result does not show its sort fields. Places follow the writes. The place in the digest
        then does not count.
    """

    __slots__ = ("_seen", "places")

    def __init__(self, seen: Mapping[int, bytes], places: Places | None = None) -> None:
        self._seen = dict(seen)
        self.places = places

    @property
    def bytes(self) -> int:
        """Estimated memory in bytes, beside that of members."""
        return _SHOWN * len(self._seen) + (0 if self.places is None else self.places.bytes)

    def same(self, identity: int, rules: Rules, record: Document) -> bool:
        """Whether a member that still matches certainly has the look and the place of its digest.

        record: the record after the write.
        """
        seen = self._seen.get(identity)
        return seen is not None and seen == member_digest(rules, record)

    def looks_same(self, identity: int, rules: Rules, record: Document) -> bool:
        """Whether a member that still matches certainly has the look of its digest, wherever it stands."""
        seen = self._seen.get(identity)
        return seen is not None and look_the_same(seen, member_digest(rules, record))


class Page:
    """Records before a window with an offset.

    skipped: hashes of the skipped records.
    first: sort key with which the window begins.
    shown: the members.
    """

    __slots__ = ("_first", "_sort", "shown", "skipped")

    def __init__(self, skipped: Iterable[int], first: SortKey, sort: Any, shown: Shown | None = None) -> None:
        self.skipped = frozenset(skipped)
        self.shown = shown
        self._first = first
        self._sort = sort

    @property
    def bytes(self) -> int:
        """Estimated memory in bytes, beside that of members."""
        return _COUNTED * len(self.skipped) + (0 if self.shown is None else self.shown.bytes)

    def still_skips(self, record: Document | None) -> bool:
        """Whether a skipped record still stands before the window. None: the record no longer matches."""
        return record is not None and bool(sort_key(record, self._sort) < self._first)


class Unplaced:
    """Matching records of a window without an order, which skips some and shows some.

    The skipped records are not known. The result stays while every other record still matches and keeps its place.

    others: the records that are not shown, with digests of the fields that place them.
    shown: the members.
    """

    __slots__ = ("_members", "others", "shown")

    def __init__(self, members: Iterable[int], others: Inputs, shown: Shown | None = None) -> None:
        self._members = frozenset(members)
        self.others = others
        self.shown = shown

    def shows(self, identity: int) -> bool:
        """Whether the window shows a record."""
        return identity in self._members

    @property
    def bytes(self) -> int:
        """Estimated memory in bytes, beside that of members."""
        return self.others.bytes + (0 if self.shown is None else self.shown.bytes)


Kept = Counted | Holders | Inputs | Page | Shown | Unplaced


class Supplied:
    """Members, boundary and contributors by which a registration is judged once its contributors are known.

    members: hashes of the records whose writes lead to the registration; None: writes do not, see `kept`.
    boundary: see LiveRegistration.
    """

    __slots__ = ("boundary", "kept", "members")

    def __init__(self, members: tuple[int, ...] | None, boundary: Any = None, kept: Kept | None = None) -> None:
        self.members = members
        self.boundary = boundary
        self.kept = kept


def supplied(
    contributors: Contributors,
    rules: Rules,
    query: Query,
    hashes: Sequence[int | None],
    *,
    cells: int,
    follows: bool = True,
    members: tuple[int, ...] | None = None,
) -> Supplied | None:
    """Return the data by which contributors judge a registration; None if they do not suffice.

    query: the query as planned.
    hashes: hashes of the records, in order; None for records of other write partitions.
    cells: number of write partitions, which share the spare records.
    follows: the cell receives every later write to the contributors.
    members: hashes of the result's members, where it shows them.
    """
    own = tuple(identity for identity in hashes if identity is not None)
    if not rules.by_predicate:
        return _inputs(contributors, rules, hashes) if rules.result is not Result.RECORDS else None
    if rules.result is Result.COUNT:
        return _counted(contributors, query, own, cells)
    if rules.result is Result.VALUES:
        holders = _holders(contributors, rules.distinct_key, hashes)
        return None if holders is None else Supplied(None, kept=holders)
    if rules.result is not Result.RECORDS or not contributors.complete:
        return None
    records = contributors.records
    full = bool(query.limit) and len(records) >= query.skip + query.limit
    boundary = sort_key(records[-1], rules.sort) if full and rules.sort else None
    if rules.window is Window.OFFSET and len(records) <= query.skip:
        return Supplied(None, kept=Counted(own, full=False, spare=(query.skip - len(records)) // cells))
    if rules.window is Window.OFFSET and not rules.sort:
        return _unplaced(contributors, rules, hashes, members)
    places = _places(contributors, rules, query, hashes, full=full) if follows else None
    shown = _shown(contributors, hashes, places)
    if rules.window is not Window.OFFSET:
        return Supplied(own, boundary, shown)
    skipped = [identity for identity in hashes[: query.skip] if identity is not None]
    return Supplied(own, boundary, Page(skipped, sort_key(records[query.skip], rules.sort), rules.sort, shown))


def _unplaced(
    contributors: Contributors, rules: Rules, hashes: Sequence[int | None], members: tuple[int, ...] | None
) -> Supplied | None:
    if members is None:
        return None
    placing = {
        identity: seen_digest(rules.relevant.placing, record)
        for record, identity in zip(contributors.records, hashes, strict=True)
        if identity is not None and identity not in members
    }
    kept = Unplaced(members, Inputs(placing, rules.relevant.placing), _shown(contributors, hashes, None))
    return Supplied((*members, *placing), kept=kept)


def _places(
    contributors: Contributors, rules: Rules, query: Query, hashes: Sequence[int | None], *, full: bool
) -> Places | None:
    if not contributors.placed or not rules.sort or len(hashes) <= query.skip:
        return None
    keys = [sort_key(record, rules.sort) for record in contributors.records[query.skip :]]
    return Places(keys, hashes[query.skip :], skipping=query.skip > 0, full=full)


def _shown(contributors: Contributors, hashes: Sequence[int | None], places: Places | None) -> Shown | None:
    seen = {
        identity: digest
        for identity, digest in zip(hashes, contributors.digests, strict=False)
        if identity is not None and digest
    }
    return Shown(seen, places) if seen or places is not None else None


def _inputs(contributors: Contributors, rules: Rules, hashes: Sequence[int | None]) -> Supplied | None:
    if not contributors.complete:
        return None
    seen = {
        identity: seen_digest(rules.relevant.visible, record)
        for record, identity in zip(contributors.records, hashes, strict=True)
        if identity is not None
    }
    return Supplied(tuple(seen), kept=Inputs(seen, rules.relevant.visible))


def _counted(contributors: Contributors, query: Query, own: tuple[int, ...], cells: int) -> Supplied | None:
    number, reach = len(contributors.records), query.skip + query.limit
    if query.limit and number >= reach:
        return Supplied(None, kept=Counted(own, full=True, spare=(number - reach) // cells))
    if not contributors.complete:
        return None
    if query.skip and number <= query.skip:
        return Supplied(None, kept=Counted(own, full=False, spare=(query.skip - number) // cells))
    return Supplied(own)


def _holders(contributors: Contributors, path: str, hashes: Sequence[int | None]) -> Holders | None:
    if not contributors.complete:
        return None
    held: dict[int, frozenset[bytes]] = {}
    forms: dict[Any, bytes] = {}
    known: set[bytes] = set()
    for record, identity in zip(contributors.records, hashes, strict=True):
        for value in _values(record, path):
            digest = _digest(value)
            if forms.setdefault(order_key(value), digest) != digest:
                return None  # the database shows the form that it meets first
        values = _held(record, path)
        known |= values
        if identity is not None:
            held[identity] = values
    return Holders(path, held, frozenset(known))


def _held(record: Document, path: str) -> frozenset[bytes]:
    """Return the contribution of a record to a distinct: its values, and a mark where an index and the records disagree.

    With an index mongod shows null for a record without the field, and takes nested arrays for their elements. One record
    with an array ends both. Marks therefore count the first record without a value, the first with an array, and each odd form.
    """
    values = frozenset(map(_digest, _values(record, path)))
    _, plain = reachable(record, tuple(path.split(".")))
    if plain:
        return values or frozenset((_MISSING,))
    field_value = record.get(path)
    if is_array(field_value) and field_value and not any(map(is_array, field_value)):
        return values | {_ARRAY}
    return values | {_ODD + _digest(record.get(path.split(".", 1)[0]))}


def _values(record: Document, path: str) -> list[Any]:
    return [part.row["value"] for part in distinct_values(path)(dict(record))]


def _digest(value: Any) -> bytes:
    return bson.encode({"": value}, codec_options=OPTIONS)
