"""Query plan: whether a query is matched exactly or widened, by which index, and why. The node and `explain` share it.

*Exact*: a write is judged by the records that the query matches and shows. *Widened*: more writes count than change the result.
Other writes that count are writes to records that pass a pipeline's leading `$match`, or that the query joins. Writes to inputs
of a value that is not evaluated here count too. Without a predicate every write to the namespace counts. A plan is a pure
function of the query.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from quaestor.errors import UnsupportedQueryError
from quaestor.model import Document, Operation, Query
from quaestor.planning.access_entries import Access, describe_choice, most_by_id
from quaestor.planning.access_paths import access_paths
from quaestor.planning.collation import compares_strings, without_order_of_strings
from quaestor.planning.command_variables import with_constants
from quaestor.planning.filter_fields import searched_paths
from quaestor.planning.foreign_reads import ForeignRead, foreign_reads
from quaestor.planning.hidden_types import hidden_type
from quaestor.planning.index_order import NOTHING, also, leaves_order_open, may_find_by, tied_fields
from quaestor.planning.pipeline_shape import PipelineShape
from quaestor.planning.plan_parts import Display, IndexOrder, Place, RelevantFields, Result, Window
from quaestor.planning.projected import decided_by_paths, shown_by
from quaestor.planning.query_identity import essence_of, query_id_of
from quaestor.planning.relevant_fields import (
    ALL,
    Fields,
    fields_of_pipeline,
    fields_of_values,
    fields_that_filter,
    fields_that_matter,
    fields_that_place,
    fields_that_show,
    positional,
)
from quaestor.query.aggregation import projects, shows
from quaestor.query.allowance import one_query
from quaestor.query.ast import Node, predicates_of
from quaestor.query.compiled import CompiledQuery, compile_query
from quaestor.query.geo.near import near_of
from quaestor.query.ranking import rank_key
from quaestor.query.sorting import parse_sort
from quaestor.query.text.operator import search_of, with_text_index

_BY_SCORE: Final = {"$meta": "textScore"}
_RANKING: Final = frozenset({"$near", "$text"})
"""Operators that may order a result."""
TO_LEADING_MATCH: Final = "pipeline: widened to its leading $match"
TO_COLLECTION: Final = "pipeline without a leading $match: widened to the collection"
HINTED: Final = "hint: a sparse or partial index would leave records out"
JOINED: Final = "joined: of the other records that it brings in it is not known which count"
NOT_EVALUATED: Final = "shows what is not evaluated: any change of what it is made of counts"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPlan:
    """Plan of one query.

    reason: why it is widened, a sentence, else None.
    by_predicate: of its own collection's records, the predicate decides which of them the result holds, and where.
    query: as asked, without an order by score; of a pipeline that is a find, with that find's filter, sort and window.
    query_id: equal for equal queries, however written.
    condition: the filter that decides which records concern the query.
    predicate: the condition, compiled. None: the whole namespace.
    access: how the node finds the query from a written record: alternatives, best first; empty: every write tries it.
    at_most: upper bound of the matching records, by the `_id`s in the filter; None: it names none.
    foreign_reads: reads of a pipeline besides its own records, of other collections or of its own once more.
    """

    query: Query
    query_id: str
    reason: str | None
    by_predicate: bool
    condition: Document | None
    predicate: CompiledQuery | None
    access: tuple[Access, ...]
    window: Window
    result: Result
    relevant: RelevantFields
    index_order: IndexOrder
    place: Place
    display: Display
    at_most: int | None
    foreign_reads: tuple[ForeignRead, ...]

    @property
    def match(self) -> str:
        """ "exact" or "widened"."""
        return "exact" if self.reason is None else "widened"

    def shows(self, path: str) -> bool:
        """Whether the result certainly shows this path of its records as stored."""
        if self.query.operation is Operation.AGGREGATE:
            return shows(self.display.shaping, path)
        projection = self.query.projection or {}
        return projects(projection, path.split(".", 1)[0]) or (path in projection and projects(projection, path))

    @property
    def index(self) -> str:
        """How the node finds the query from a written record, for people."""
        return "every write" if self.predicate is None else describe_choice(self.access)

    @property
    def foreign_namespaces(self) -> tuple[str, ...]:
        """The namespaces of the foreign reads, sorted."""
        return tuple(sorted({read.namespace for read in self.foreign_reads}))

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Every namespace whose writes concern the query, its own first."""
        own = self.query.namespace
        return (own, *(name for name in self.foreign_namespaces if name != own))


@one_query()
def plan_query(query: Query) -> QueryPlan:
    """Plan a query. Never refuses a query that mongod accepts: a query that this engine cannot match is widened.

    Raises MalformedQueryError if mongod would refuse it too. O(size of the query).
    """
    original = query
    shape = PipelineShape.of(query) if query.operation is Operation.AGGREGATE else None
    if shape is not None and shape.as_find is not None:
        query = shape.as_find
    by_score = query.text_index is not None and [direction for _, direction in query.sort] == [_BY_SCORE]
    natural = [path for path, _ in query.sort] == ["$natural"]
    query = with_constants(_without_rank(query if not natural else replace(query, sort=())))
    foreign = foreign_reads(query)
    hinted = query.widened == HINTED
    reason = None if hinted else query.widened
    collated = None if reason else _collated(query)
    condition: Document | None = None
    predicate: CompiledQuery | None = None
    root: Node | None = None
    if reason is None:
        try:
            condition, reason = _condition(query, shape)
            if condition is not None:
                condition = dict(with_text_index(condition, query.text_index))
                predicate = compile_query(condition)
                root = predicate.root
                if (hidden := hidden_type(root)) is not None:
                    raise UnsupportedQueryError(f"type {hidden}: the driver decodes such values as another type")
        except UnsupportedQueryError as unsupported:
            condition, predicate, root, reason = None, None, None, unsupported.reason
    if condition is None and reason == TO_COLLECTION and shape is not None:
        condition, predicate = _whole_collection(query, shape)
        root = None if predicate is None else predicate.root
    if collated is not None and query.collation is not None:
        reason = collated
        if condition is not None:
            condition = without_order_of_strings(condition, query.collation)
            predicate = compile_query(condition)
    access = () if predicate is None else tuple(access_paths(predicate.root))
    at_most = None if root is None else most_by_id(access)
    if at_most == 1 and query.operation is Operation.FIND and not query.skip and not by_score:
        query = replace(query, sort=())  # a single record comes first in any order
    ranked = root is not None and any(predicate.operator in _RANKING for predicate in predicates_of(root))
    ordering = () if root is None else _ordering(query, root if ranked else None, by_score=by_score)
    window = _window(query, ranked=bool(ordering), at_most=at_most)
    whole = root is None or hinted  # any field may decide which records a partial index holds
    fields = ALL if root is None or whole else _fields(query, shape, root)
    placing = ALL if root is None or whole else fields_that_place(query, root)
    result = _result(query, shape)
    whole = whole or collated is not None
    stays_put = natural or _in_order_of_storage(query, placing, ordered=bool(ordering))
    order_shows = (
        not natural
        and (result is Result.OPAQUE or (result is Result.RECORDS and at_most != 1))
        and leaves_order_open(query, None if shape is None or shape.as_find is not None else shape.rest)
    )
    order_open = (
        order_shows
        and not hinted
        and (
            fields != ALL
            or (window in (Window.OFFSET, Window.UNORDERED) and placing != ALL)
            or (not whole and _visible(query, shape, fields, ordered=True, stays_put=stays_put) != ALL)
        )
    )
    found_by: Fields | None = None
    if root is None or hinted or foreign or ranked:
        found_by = ALL
    elif order_shows or result is Result.VALUES or (collated and result is not Result.COUNT and at_most != 1):
        found_by = placing if result is Result.RECORDS else fields
    tied = NOTHING
    if order_open and query.index_keys:
        filtered = NOTHING if root is None or not query.sort else fields_that_filter(root, besides=query.sort)
        tied = tied_fields(query.index_keys, placing if result is Result.RECORDS else fields, filtered)
    shaping = () if shape is None else shape.shaping
    shown = shown_by(query, shaping) if result is Result.RECORDS and reason is None else b""
    by_predicate = reason is None and not hinted
    if hinted:
        reason = reason or HINTED
    if reason is None and (foreign or shown is None):
        reason = JOINED if foreign else NOT_EVALUATED
    visible = fields if whole else _visible(query, shape, fields, ordered=not order_open, stays_put=stays_put)
    return QueryPlan(
        query=query,
        query_id=_query_id(original, None if collated else predicate),
        reason=reason,
        by_predicate=by_predicate,
        condition=condition,
        predicate=predicate,
        access=access,
        window=window,
        result=result,
        relevant=RelevantFields(also(fields, tied), also(visible, tied), also(placing, tied)),
        index_order=IndexOrder(order_open, tied, found_by),
        place=Place(
            ordering,
            _keeps_place(query, window, ordering),
            rank_key(root) if root is not None and window is Window.BOUNDARY and not query.sort else None,
        ),
        display=Display(shaping, shown or b"", bool(shown) and not decided_by_paths(query, shaping)),
        at_most=at_most,
        foreign_reads=foreign,
    )


def _without_rank(query: Query) -> Query:
    """Return the query without an order by score. Any change of a record can move it then, so places need not be known."""
    if query.text_index is None or not any(direction == _BY_SCORE for _, direction in query.sort):
        return query
    return replace(query, sort=())


def _whole_collection(query: Query, shape: PipelineShape) -> tuple[Document | None, CompiledQuery | None]:
    """Return the condition of a pipeline over all records: it depends on each, but only on its read fields, if known."""
    everything: Document = {}
    predicate = compile_query(everything)
    return (None, None) if _fields(query, shape, predicate.root) == ALL else (everything, predicate)


def _collated(query: Query) -> str | None:
    """Return the reason why a collation matters, or None. Without compared strings in filter and order it does not."""
    if query.collation is None or query.collation.get("locale") == "simple":
        return None
    plain = query.operation in (Operation.FIND, Operation.COUNT) and not query.sort
    if plain and not compares_strings(query.filter):
        return None
    return f"collation {query.collation.get('locale')!r}: strings compare by rules of a language"


def _condition(query: Query, shape: PipelineShape | None) -> tuple[Document | None, str | None]:
    """Return the filter that decides which records concern the query, and why that is more than change its result."""
    if query.let is not None:
        raise UnsupportedQueryError("let: variables of the command")
    if shape is None or shape.as_find is not None:
        parse_sort(query.sort)
        return query.filter, None
    if shape.counts:
        return shape.leading or {}, None
    return (shape.leading, TO_COLLECTION if shape.leading is None else TO_LEADING_MATCH)


def _window(query: Query, *, ranked: bool, at_most: int | None) -> Window:
    if query.skip:
        return Window.OFFSET
    if not query.limit or (at_most is not None and at_most <= query.limit):
        return Window.NONE
    return Window.BOUNDARY if query.sort or ranked else Window.UNORDERED


def _keeps_place(query: Query, window: Window, ordering: tuple[str, ...]) -> bool:
    """Whether the order has one place for every record. `_id` completes such an order, or fields of the filter and indexes decide
    it as the order of finding."""
    if query.sort:
        return any(path == "_id" for path, _ in query.sort)
    unordered = window in (Window.UNORDERED, Window.OFFSET) and not ordering
    return unordered and query.text_index is None


def _result(query: Query, shape: PipelineShape | None) -> Result:
    if query.operation is Operation.COUNT or (shape is not None and shape.counts):
        return Result.COUNT
    if query.operation is Operation.DISTINCT:
        return Result.VALUES
    return Result.RECORDS if shape is None or shape.as_find is not None else Result.OPAQUE


def _fields(query: Query, shape: PipelineShape | None, root: Node) -> Fields:
    if _result(query, shape) in (Result.COUNT, Result.VALUES):
        return fields_of_values(query, root)
    known = ALL if shape is not None and shape.as_find is None else fields_that_matter(query, root)
    return fields_of_pipeline(shape.rest, root) if shape is not None and known == ALL else known


def _in_order_of_storage(query: Query, placing: Fields, *, ordered: bool) -> bool:
    """Whether no index finds the records of a query without a sort, so that they come in stored order."""
    if query.sort or ordered or query.text_index is not None:
        return False
    return not may_find_by((key[0] for key in query.index_keys), placing)


def _visible(query: Query, shape: PipelineShape | None, fields: Fields, *, ordered: bool, stays_put: bool) -> Fields:
    """Return the fields that show of a record that stays. A find with a sort shows its projection, a pipeline the fields it reads
    after its leading filter. Where the order is open, the filter's fields may decide it (`$near`, an index).

    ordered: the order in which records are found cannot show.
    stays_put: the order is that of storage, which no update changes.
    """
    if shape is None:
        return fields_that_show(query) if (query.sort or stays_put) and not positional(query) else fields
    if shape.as_find is not None and (query.sort or stays_put) and query.projection:
        shown = fields_that_show(query)
        return fields if shown == ALL else shown
    if shape.as_find is not None or not ordered or _result(query, shape) is not Result.OPAQUE:
        return fields
    return fields_of_pipeline(shape.rest, compile_query({}).root)


def _ordering(query: Query, ranking: Node | None, *, by_score: bool) -> tuple[str, ...]:
    """Return the paths that decide a record's place in the result; empty without an order, or for one by the whole record.

    ranking: the filter, if `$near` or `$text` in it may order the result.
    """
    if query.sort:
        return tuple(path for path, _ in query.sort)
    if ranking is None:
        return ()
    near, search = near_of(ranking), search_of(ranking)
    if near is not None:
        return (near.path,)
    return () if search is None or not by_score else tuple(sorted(searched_paths(search.index) or ()))


def _query_id(query: Query, predicate: CompiledQuery | None) -> str:
    essence = essence_of(query, collated=_collated(query) is not None)
    if predicate is not None and not query.pipeline:
        essence = {**essence, "filter": predicate.identity}
    return query_id_of(query, essence)
