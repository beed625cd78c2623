"""Random records, filters and queries over a few fields, small enough that things meet."""

from __future__ import annotations

import datetime
from typing import Any

from bson import Decimal128, Int64, ObjectId, Regex
from hypothesis import strategies as st

from quaestor.errors import QueryError
from quaestor.query.compiled import compile_query

FIELDS = ("a", "b", "c")
PATHS = (*FIELDS, "a.b", "a.0", "b.c", "a.b.c")

scalars = st.one_of(
    st.integers(-3, 6),
    st.sampled_from([0.5, 2.0, -1.5, float("nan"), float("inf"), Int64(3), Decimal128("2"), Decimal128("0.1")]),
    st.sampled_from(["", "a", "ab", "abc", "b", "Ab", "a.c"]),
    st.sampled_from([None, True, False]),
    st.sampled_from(
        [
            ObjectId("0" * 24),
            ObjectId("1" * 24),
            datetime.datetime(2020, 1, 1),
            datetime.datetime(2020, 1, 2),
            b"x",
            Regex("^a"),
        ]
    ),
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(FIELDS), inner, max_size=2)),
    max_leaves=5,
)
bodies = st.dictionaries(st.sampled_from(FIELDS), values, max_size=3)


def _usable(filter: dict[str, Any]) -> bool:  # noqa: A002
    try:
        compile_query(filter)
    except QueryError:
        return False
    return True


_operators = st.one_of(
    values.map(lambda value: {"$eq": value}),
    st.tuples(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), values).map(lambda pair: {pair[0]: pair[1]}),
    st.tuples(scalars, scalars).map(lambda pair: {"$gte": pair[0], "$lt": pair[1]}),
    st.lists(values, max_size=4).map(lambda members: {"$in": members}),
    values.map(lambda value: {"$ne": value}),
    st.lists(scalars, max_size=3).map(lambda members: {"$nin": members}),
    st.booleans().map(lambda there: {"$exists": there}),
    st.sampled_from(["^a", "^ab", "b", "^a.c", "(?i)^a", "^", "^(a|b)", "^a?b", "^a{0,1}b"]).map(
        lambda p: {"$regex": p}
    ),
    st.sampled_from(["bc", "abc$", "(?i)AB", "ab|bc", "(ab|Ab)c?", "a.*bc", "x(?=ab)", "ab{2}", "^a.*bc"]).map(
        lambda p: {"$regex": p}
    ),
    st.sampled_from(["b", "ab", "^a"]).map(lambda p: {"$not": {"$regex": p}}),
    st.tuples(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), scalars).map(lambda pair: {"$not": {pair[0]: pair[1]}}),
    st.tuples(scalars, scalars).map(lambda pair: {"$not": {"$gte": pair[0], "$lt": pair[1]}}),
    st.integers(0, 3).map(lambda size: {"$size": size}),
    st.sampled_from(
        [{"$mod": [2, 0]}, {"$mod": [-3, -1]}, {"$type": "number"}, {"$type": "array"}, {"$bitsAllSet": 1}]
    ),
    st.lists(scalars, min_size=1, max_size=2).map(lambda members: {"$all": members}),
    scalars.map(lambda value: {"$not": {"$gt": value}}),
    scalars.map(lambda value: {"$elemMatch": {"$gte": value}}),
    st.tuples(scalars, scalars).map(lambda pair: {"$elemMatch": {"$gt": pair[0], "$lt": pair[1]}}),
    st.tuples(st.sampled_from(FIELDS), values).map(lambda pair: {"$elemMatch": {pair[0]: pair[1]}}),
    st.just({"$elemMatch": {"$elemMatch": {"$gt": 1}}}),
    st.just({"$elemMatch": {"0": 1}}),
)
_expressions = st.recursive(
    st.one_of(
        st.tuples(
            st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]),
            st.sampled_from(PATHS),
            scalars,
            st.booleans(),
        ).map(lambda four: {four[0]: [f"${four[1]}", four[2]] if four[3] else [four[2], f"${four[1]}"]}),
        st.tuples(st.sampled_from(PATHS), st.lists(scalars, max_size=3)).map(
            lambda two: {"$in": [f"${two[0]}", two[1]]}
        ),
    ),
    lambda inner: st.tuples(st.sampled_from(["$and", "$or"]), st.lists(inner, min_size=1, max_size=3)).map(
        lambda pair: {pair[0]: pair[1]}
    ),
    max_leaves=3,
)
_leaves = st.one_of(
    _expressions.map(lambda expression: {"$expr": expression}),
    st.tuples(st.sampled_from(PATHS), values).map(lambda pair: {pair[0]: pair[1]}),
    st.tuples(st.sampled_from(PATHS), _operators).map(lambda pair: {pair[0]: pair[1]}),
    st.tuples(st.sampled_from(PATHS), _operators, st.sampled_from(PATHS), _operators).map(
        lambda four: {four[0]: four[1], four[2]: four[3]}
    ),
)
filters: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.one_of(st.just({}), _leaves),
    lambda inner: st.tuples(st.sampled_from(["$and", "$or", "$nor"]), st.lists(inner, min_size=1, max_size=3)).map(
        lambda pair: {pair[0]: pair[1]}
    ),
    max_leaves=4,
).filter(_usable)
