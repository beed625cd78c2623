"""The same filters, patterns and sorts, asked of a real mongod and of our engine: the answers must be the same.

A seeded share runs always; the marked ones run 20,000 cases more, with a seed that Hypothesis prints when it fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any

import bson
import pymongo
import pytest
from bson import Decimal128
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.strategies import floats, fractions, lists
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.query import compile_query, sort_documents
from tests.oracle.pattern_strategies import EXPRESSIONS, REPEATS, TEXTS
from tests.oracle.query_strategies import COLLECTIONS, SORTED_COLLECTIONS

Documents = list[dict[str, Any]]
Answer = list[Any] | str

CHECKS = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=True)
SEED = 20_170_901


@pytest.fixture(scope="module")
def collection(mongo_url: str) -> Iterator[Collection[dict[str, Any]]]:
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        yield client["query_oracle"]["records"]
        client.drop_database("query_oracle")


@pytest.fixture(scope="module")
def texts(mongo_url: str) -> Iterator[Collection[dict[str, Any]]]:
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        collection = client["query_oracle_texts"]["records"]
        collection.insert_many([{"_id": position, "text": text} for position, text in enumerate(TEXTS)])
        yield collection
        client.drop_database("query_oracle_texts")


def store(collection: Collection[dict[str, Any]], documents: Documents) -> Documents:
    """Puts them in place of what was there. Returns them as pymongo would decode them."""
    collection.delete_many({})
    collection.insert_many([dict(document) for document in documents])
    return [bson.decode(bson.encode(document)) for document in documents]


def theirs(collection: Collection[dict[str, Any]], filter_: dict[str, Any], **options: Any) -> Answer:
    try:
        ids = [record["_id"] for record in collection.find(filter_, {"_id": 1}, **options)]
    except OperationFailure:
        return "refused"
    return ids if options else sorted(ids)


def ours(documents: Documents, filter_: dict[str, Any]) -> Answer | None:
    """None: unsupported, which is always safe."""
    try:
        matches = compile_query(filter_).matches
    except MalformedQueryError:
        return "refused"
    except UnsupportedQueryError:
        return None
    return [document["_id"] for document in documents if matches(document)]


def check_filters(collection: Collection[dict[str, Any]], documents: Documents, filters: Documents) -> None:
    stored = store(collection, documents)
    for filter_ in filters:
        answer = ours(stored, filter_)
        if answer is not None:
            assert answer == theirs(collection, filter_), f"{filter_!r} on {stored!r}"


def check_order(collection: Collection[dict[str, Any]], documents: Documents, sorts: list[Any]) -> None:
    stored = store(collection, documents)
    for sort in sorts:
        try:
            answer: Answer = [document["_id"] for document in sort_documents(stored, sort, by_id=True)]
        except MalformedQueryError:
            answer = "refused"
        assert answer == theirs(collection, {}, sort=[*sort, ("_id", 1)]), f"{sort!r} on {stored!r}"


def check_expression(texts: Collection[dict[str, Any]], pattern: str, options: str) -> None:
    filter_ = {"text": {"$regex": pattern, "$options": options}}
    answer = ours([{"_id": position, "text": text} for position, text in enumerate(TEXTS)], filter_)
    if answer is not None:
        assert answer == theirs(texts, filter_), f"{pattern!r} with {options!r}"


@seed(SEED)
@settings(CHECKS, max_examples=400)
@given(case=COLLECTIONS)
def test_filters_match_what_mongod_matches(
    collection: Collection[dict[str, Any]], case: tuple[Documents, Documents]
) -> None:
    """Any filter, well formed or not, on any documents: about 2,200 filters, each on up to eight documents."""
    check_filters(collection, *case)


@pytest.mark.slow
@settings(CHECKS, max_examples=4_000)
@given(case=COLLECTIONS)
def test_20_000_filters_match_what_mongod_matches(
    collection: Collection[dict[str, Any]], case: tuple[Documents, Documents]
) -> None:
    """At least five filters an example on average."""
    check_filters(collection, *case)


@seed(SEED)
@settings(CHECKS, max_examples=20)
@given(
    doubles=lists(floats(allow_nan=False, allow_infinity=False) | fractions(max_denominator=10).map(float), max_size=10)
)
def test_doubles_and_decimals_compare_as_in_mongod(
    collection: Collection[dict[str, Any]], doubles: list[float]
) -> None:
    """By value: a Decimal128 that is a double's first 34 digits is another number, unless that is all there is."""
    numbers: list[Any] = [0.1, *doubles]
    numbers += [
        Decimal128(Context(prec=34, Emin=-6143, Emax=6144, rounding=rounding).create_decimal_from_float(double))
        for double in numbers
        for rounding in (ROUND_FLOOR, ROUND_CEILING)
    ]
    documents: Documents = [{"_id": position, "a": number} for position, number in enumerate(numbers)]
    operators = ("$eq", "$lt", "$gte")
    check_filters(collection, documents, [{"a": {operator: number}} for number in numbers for operator in operators])
    check_order(collection, documents, [[("a", 1)], [("a", -1)]])


@seed(SEED)
@settings(CHECKS, max_examples=150)
@given(case=SORTED_COLLECTIONS)
def test_documents_are_in_mongods_order(
    collection: Collection[dict[str, Any]], case: tuple[Documents, list[Any]]
) -> None:
    """Mixed types, arrays, embedded documents, several keys, both directions; parallel arrays fail in both."""
    check_order(collection, *case)


@pytest.mark.slow
@settings(CHECKS, max_examples=4_000)
@given(case=SORTED_COLLECTIONS)
def test_many_documents_are_in_mongods_order(
    collection: Collection[dict[str, Any]], case: tuple[Documents, list[Any]]
) -> None:
    check_order(collection, *case)


@seed(SEED)
@settings(CHECKS, max_examples=1_500)
@given(expression=EXPRESSIONS)
def test_regular_expressions_find_what_mongods_find(
    texts: Collection[dict[str, Any]], expression: tuple[str, str]
) -> None:
    """Patterns put together from all of PCRE's constructs, half of them malformed."""
    check_expression(texts, *expression)


@seed(SEED)
@settings(CHECKS, max_examples=500)
@given(expression=REPEATS)
def test_quantifiers_are_read_as_mongods_reads_them(
    texts: Collection[dict[str, Any]], expression: tuple[str, str]
) -> None:
    """Of comments, white space and quotations before and within a quantifier some count and some do not."""
    check_expression(texts, *expression)


@pytest.mark.slow
@settings(CHECKS, max_examples=20_000)
@given(expression=EXPRESSIONS)
def test_20_000_regular_expressions_find_what_mongods_find(
    texts: Collection[dict[str, Any]], expression: tuple[str, str]
) -> None:
    check_expression(texts, *expression)
