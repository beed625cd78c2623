"""Relevant fields: the parts of a record that a query's result can show; a change elsewhere changes nothing.

A find with a projection shows only projected fields. Fields of the filter and the sort count as well, since they decide
the place of the record. Images are compared as BSON bytes, so the order of fields and numeric types count as they do for a
reader of the result. Without images, the paths that an update touched decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import bson

from quaestor.model import Document, Operation, Query
from quaestor.planning.filter_fields import filter_paths
from quaestor.planning.pipeline_fields import pipeline_paths
from quaestor.query.ast import Node
from quaestor.query.compiled import compile_query
from quaestor.query.encoding import OPTIONS
from quaestor.query.paths import is_array

_PARTS: Final = (["$slice"], ["$elemMatch"])
"""Projections that show a part of an array."""
_POSITION: Final = ".$"

Tree = dict[str, "Tree"]
"""Paths by component; an empty tree is everything below."""


@dataclass(frozen=True, slots=True)
class Fields:
    """Fields of a record that matter.

    shown: paths whose values matter.
    hidden: if not None, everything matters except these, and `shown` in any case.
    """

    shown: tuple[str, ...]
    hidden: tuple[str, ...] | None = None

    def same(self, before: Document, after: Document) -> bool:
        """Whether nothing that matters differs. O(size of the records)."""
        if not _equal(_only(before, _tree(self.shown)), _only(after, _tree(self.shown))):
            return False
        return self.hidden is None or _equal(_without(before, _tree(self.hidden)), _without(after, _tree(self.hidden)))

    def seen(self, record: Document) -> bytes:
        """Return the part of a record that matters: equal for records without a relevant difference. O(size of the record)."""
        only = _only(record, _tree(self.shown))
        rest = None if self.hidden is None else _without(record, _tree(self.hidden))
        return bson.encode({"": [only, rest]}, codec_options=OPTIONS)

    def untouched(self, changed: Iterable[str]) -> bool:
        """Whether an update that touched these paths left all relevant fields alone. See `AfterImage.changed`.

        A dot may also be part of a field's name; then the result is False if either of the two readings matters.
        O(number of paths).
        """
        if self.hidden == ():
            return False
        return not any(_overlaps(_tree(self.shown), path) for path in changed) and (
            self.hidden is None or all(path in self.hidden and "." not in path for path in changed)
        )

    def describe(self) -> str:
        """Return the fields in words, for people."""
        if self.hidden is None:
            return ", ".join(self.shown) or "none"
        return "all" if not self.hidden else f"all but {', '.join(self.hidden)}"


ALL: Final = Fields((), ())


def fields_that_place(query: Query, root: Node) -> Fields:
    """Return the fields that decide whether a record belongs to the result and where: those of filter and sort."""
    read = filter_paths(root)
    return fields_of_paths(None if read is None else read.union(path for path, _ in query.sort))


def fields_that_filter(root: Node, *, besides: Sequence[tuple[str, int]]) -> Fields:
    """Return the fields that a filter reads, without those of this sort."""
    read = filter_paths(root)
    return fields_of_paths(None if read is None else read.difference(path for path, _ in besides))


def fields_that_show(query: Query) -> Fields:
    """Return the fields that a result shows by its projection, or computes from; all, if that is unknown."""
    if not query.projection:
        return ALL
    said = list(_said(query.projection))
    switches = {path: value for path, value in said if isinstance(value, bool | int | float)}
    parts = [path for path, value in said if isinstance(value, Mapping) and list(value) in _PARTS]
    if len(switches) + len(parts) < len(said):
        return ALL if parts or positional(query) else fields_of_paths(_computed(query.projection))
    if parts and query.operation is not Operation.FIND:
        return ALL  # a stage computes by `$slice`, from any fields
    switches = {path.removesuffix(_POSITION): value for path, value in switches.items()}
    if any("$" in path for path in (*switches, *parts)):
        return ALL
    if parts and not any(on for path, on in switches.items() if path != "_id"):
        alone = all("$elemMatch" in value for _, value in said if isinstance(value, Mapping))
        if not alone or switches.keys() - {"_id"}:
            return ALL  # beside `$slice` all other fields are shown as well
    shows = [path for path, on in switches.items() if on] + parts
    if shows and (shows != ["_id"] or len(switches) == 1):
        return fields_of_paths(shows)
    return Fields((), tuple(sorted(path for path, on in switches.items() if not on and not _has_number(path))))


def positional(query: Query) -> bool:
    """Whether a projection shows the array element that the filter has found, so that the filter's fields show too."""
    return any(path.endswith(_POSITION) for path in query.projection or ())


def _computed(projection: Document) -> Iterable[str] | None:
    """Return the paths that a projection with computed fields shows and reads; None: unknown."""
    if any(isinstance(value, Mapping) and "$meta" in value for _, value in _said(projection)):
        return None
    return pipeline_paths([{"$project": projection}], compile_query({}).root)


def _said(projection: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Iterate over a projection's switches by path: `{a: {b: 1}}` is `{"a.b": 1}`."""
    for name, value in projection.items():
        if isinstance(value, Mapping) and not next(iter(value), "$").startswith("$"):
            yield from _said(value, f"{above}{name}.")
        else:
            yield above + name, value


def fields_that_matter(query: Query, root: Node) -> Fields:
    """Return the fields that show, and the fields that decide whether a record belongs to the result and where."""
    shown = fields_that_show(query)
    if shown == ALL:
        return ALL
    placing = fields_that_place(query, root)
    if placing == ALL:
        return ALL
    return Fields(tuple(sorted({*placing.shown, *shown.shown})), shown.hidden)


def fields_of_values(query: Query, root: Node) -> Fields:
    """Return the fields of a count or distinct: the fields that the filter reads, and the values that are collected."""
    read = filter_paths(root)
    return fields_of_paths(read | {query.distinct_key} if read is not None and query.distinct_key else read)


def fields_of_pipeline(stages: Iterable[Document], root: Node) -> Fields:
    """Return the fields that matter to a pipeline.

    stages: the stages after the leading `$match`.
    root: its filter.
    """
    return fields_of_paths(pipeline_paths(stages, root))


def fields_of_paths(paths: Iterable[str] | None) -> Fields:
    """Return the fields at these paths; None: all.

    `_id` never changes. A path that begins with a number makes all fields count.
    """
    known = None if paths is None else tuple(sorted(path for path in paths if path != "_id"))
    return ALL if known is None or any(path.split(".", 1)[0].isdigit() for path in known) else Fields(known)


def _has_number(path: str) -> bool:
    return any(part.isdigit() for part in path.split("."))


@lru_cache(maxsize=4096)
def _tree(paths: tuple[str, ...]) -> Tree:
    """Return the paths as a tree, which must not be changed. A number may be a position or a name, so its parent counts whole."""
    tree: Tree = {}
    whole: list[Tree] = []
    for path in paths:
        below = tree
        for part in path.split("."):
            if part.isdigit():
                break
            below = below.setdefault(part, {})
        whole.append(below)
    for below in whole:
        below.clear()
    return tree


def _overlaps(tree: Tree, path: str) -> bool:
    """Whether the path, without its positions in arrays, lies above, at or below a path in the tree."""
    if not tree:
        return False
    below = tree
    for part in path.split("."):
        if part.isdigit():
            continue
        if part not in below:
            return False
        below = below[part]
        if not below:
            return True
    return True


def _only(value: Any, tree: Tree) -> Any:
    if is_array(value):
        return [_only(element, tree) for element in value]
    if not isinstance(value, Mapping):
        return value
    return {name: _only(member, tree[name]) if tree[name] else member for name, member in value.items() if name in tree}


def _without(value: Any, tree: Tree) -> Any:
    if is_array(value):
        return [_without(element, tree) for element in value]
    if not isinstance(value, Mapping):
        return value
    return {
        name: _without(member, tree[name]) if name in tree else member
        for name, member in value.items()
        if name not in tree or tree[name]
    }


def _equal(a: Document, b: Document) -> bool:
    return bson.encode(a, codec_options=OPTIONS) == bson.encode(b, codec_options=OPTIONS)
