"""Parts of a query plan: its window, the kind of its result, the fields that matter, the order by an index, and the display."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from quaestor.model import Document
from quaestor.planning.index_order import NOTHING
from quaestor.planning.relevant_fields import Fields
from quaestor.query.ranking import Rank


class Window(StrEnum):
    """Window of a result: the part of the matching records that it holds, and how a record's place in it is decided."""

    NONE = "none"
    """All matching records."""
    BOUNDARY = "boundary"
    """The first `limit` in sort order: the key of the last one decides."""
    UNORDERED = "unordered"
    """Some `limit` of them: a newcomer's place is unknown, so any counts."""
    OFFSET = "offset"
    """A stretch after `skip`: records before it count too."""


class Result(StrEnum):
    """Kind of a result: the content of the reply."""

    RECORDS = "records"
    COUNT = "count"
    VALUES = "values"
    OPAQUE = "opaque"
    """Anything computed from the matching records."""


@dataclass(frozen=True, slots=True)
class RelevantFields:
    """Fields of a record that matter to a result.

    fields: all of them.
    visible: fields that matter if the record matches before and after a write, and its sort key stays.
    placing: fields that decide whether and where the record is in the result.
    """

    fields: Fields
    visible: Fields
    placing: Fields


@dataclass(frozen=True, slots=True)
class IndexOrder:
    """Influence of indexes on a result.

    is_open: whether an index may decide the order; if so, its fields are tracked.
    tied: the fields of the order.
    found_by: an index with one of these first fields may decide the shown records, or their order; None: no index may.
    """

    is_open: bool
    tied: Fields = NOTHING
    found_by: Fields | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Place of a record in a result.

    ordering: the paths that decide the place.
    keeps_place: a record outside of a limited result stays there while an update leaves its placing fields alone.
    rank: of a limited result without a sort whose filter gives the order: key of a record's place, smaller comes first.
    """

    ordering: tuple[str, ...]
    keeps_place: bool
    rank: Rank | None


@dataclass(frozen=True, slots=True)
class Display:
    """Display of the records of a result.

    shaping: the last stages of a pipeline, which change each record.
    shown: the values that the result shows of each record, see projected.py; empty: the whole record, or not evaluated.
    computed: paths alone do not show whether an update has changed the shown values.
    """

    shaping: tuple[Document, ...]
    shown: bytes
    computed: bool
