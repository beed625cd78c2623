"""Geospatial filters on generated records: the same records, in the same order, as from a real mongod."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pymongo
import pytest
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, OperationFailure

from quaestor.errors import MalformedQueryError
from quaestor.query import compile_query
from quaestor.query.geo.near import distance_function, near_of
from tests.oracle.disagreements import require_none
from tests.oracle.geo_generator import Document, Filter, Generator

RECORDS = 60
QUESTIONS = 40


@pytest.fixture
def collection(mongo_url: str, prefix: str) -> Iterator[Collection[Document]]:
    with pymongo.MongoClient[Document](mongo_url) as client:
        yield client[prefix]["places"]
        client.drop_database(prefix)


def fill(collection: Collection[Document], documents: list[Document], index: str | None) -> list[Document]:
    """Insert what the index accepts, and return it."""
    collection.drop()
    if index is not None:
        collection.create_index([("loc", index)])
    try:
        collection.insert_many(documents, ordered=False)
    except BulkWriteError as error:
        refused = {failure["index"] for failure in error.details["writeErrors"]}
        documents = [document for position, document in enumerate(documents) if position not in refused]
    return documents


def theirs(collection: Collection[Document], filter_: Filter) -> list[Any] | str:
    try:
        return [document["_id"] for document in collection.find(filter_, {"_id": 1})]
    except OperationFailure:
        return "error"


def ours(documents: list[Document], filter_: Filter) -> list[Any] | str:
    try:
        matches = compile_query(filter_).matches
    except MalformedQueryError:
        return "error"
    return [document["_id"] for document in documents if matches(document)]


def out_of_order(documents: list[Document], filter_: Filter, order: list[Any]) -> bool:
    """Whether mongod returned a record before one that is nearer by our measure. Equally far ones come as they like."""
    near = near_of(compile_query(filter_).root)
    if near is None:
        return False
    distance = distance_function(near)
    known = {document["_id"]: distance(document) or 0.0 for document in documents}
    distances = [known[identifier] for identifier in order]
    return any(nearer > farther * (1 + 1e-9) + 1e-9 for nearer, farther in pairwise(distances))


def wraps(filter_: Filter, generator: Generator) -> bool:
    """A 2d index looks for $centerSphere on one side of the 180th meridian only, so mongod misses what is beyond it."""
    return "$centerSphere" in str(filter_) and abs(generator.center[0]) > 90


def disagreements(collection: Collection[Document], seed: int) -> tuple[int, list[str]]:
    """How many questions matched something, and what was answered differently."""
    generator = Generator(seed)
    index = (None, "2dsphere", "2d")[seed % 3]
    drawn = [generator.document(position) for position in range(RECORDS)]
    if index == "2d":
        drawn = [{"_id": position, "loc": generator.pair()} for position in range(RECORDS)]
    documents = fill(collection, drawn, index)
    matched, wrong = 0, []
    for _ in range(QUESTIONS):
        question = generator.question()
        if index is not None and generator.random.random() < 0.4:
            question = {"loc": generator.near() if index == "2dsphere" else generator.flat_near()}
        if index == "2d" and wraps(question, generator):
            continue
        expected, got = theirs(collection, question), ours(documents, question)
        matched += bool(got) and got != "error"
        if "error" in (expected, got):
            right, differing = expected == got, set()
        else:
            differing = set(expected).symmetric_difference(got)
            right = not differing and not out_of_order(documents, question, list(expected))
        if not right:
            about = [document for document in documents if document["_id"] in differing][:2]
            wrong.append(f"seed {seed}, {index}: {question!r}\n  mongod {expected}\n  ours {got}\n  {about!r}")
    return matched, wrong


def compare(collection: Collection[Document], seeds: range) -> None:
    require_none(partial(disagreements, collection), seeds, questions=QUESTIONS)


def test_places_are_found_as_mongod_finds_them(collection: Collection[Document]) -> None:
    compare(collection, range(30))


POINT = {"type": "Point", "coordinates": [1, 1]}
OPERANDS: list[Document] = [
    {"$near": [1, 1]},
    {"$near": [1, 1, 5]},
    {"$near": [1, 1, -5]},
    {"$near": [1, 1, 5, 6]},
    {"$near": [1]},
    {"$near": []},
    {"$near": {}},
    {"$near": 5},
    {"$near": "here"},
    {"$near": {"x": 1, "y": 1}},
    {"$near": {"x": 1, "y": "a"}},
    {"$near": [500, 1]},
    {"$nearSphere": [500, 1]},
    {"$nearSphere": [1, 1, 0.5]},
    {"$near": [1, 1], "$maxDistance": 5},
    {"$near": [1, 1], "$maxDistance": -5},
    {"$near": [1, 1], "$maxDistance": "5"},
    {"$near": [1, 1], "$maxDistance": float("inf")},
    {"$near": [1, 1], "$maxDistance": float("nan")},
    {"$near": [1, 1], "$minDistance": 1, "$maxDistance": 5},
    {"$near": [1, 1], "$minDistance": -1},
    {"$near": [1, 1], "$uniqueDocs": True},
    {"$near": [1, 1], "$gt": 5},
    {"$maxDistance": 5, "$near": [1, 1]},
    {"$gt": 5, "$near": [1, 1]},
    {"$near": POINT},
    {"$near": POINT, "$maxDistance": 500_000},
    {"$near": {"$geometry": POINT}},
    {"$near": {"$geometry": POINT, "$maxDistance": 500_000}},
    {"$near": {"$geometry": POINT, "$maxDistance": float("inf")}},
    {"$near": {"$geometry": POINT, "$minDistance": -1}},
    {"$near": {"$geometry": POINT, "$minDistance": "a"}},
    {"$near": {"$geometry": POINT, "$more": 1}},
    {"$near": {"$geometry": POINT}, "$maxDistance": 5},
    {"$near": {"$geometry": [1, 1]}},
    {"$near": {"$geometry": {"type": "LineString", "coordinates": [[1, 1], [2, 2]]}}},
    {"$near": {"$geometry": {"type": "Point", "coordinates": [500, 1]}}},
    {"$near": {"$maxDistance": 5}},
    {"$near": {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}},
    {"$nearSphere": POINT, "$maxDistance": 500_000},
    {"$nearSphere": {"$geometry": POINT, "$maxDistance": 500_000}},
    {"$nearSphere": {"x": 1, "y": 1}, "$maxDistance": 0.05},
    {"$geoNear": [1, 1]},
    {"$geoNear": {"$geometry": POINT, "$maxDistance": 500_000}},
    {"$not": {"$near": [1, 1]}},
    {"$elemMatch": {"$near": [1, 1]}},
    {"$geoWithin": {"$centerSphere": [[1, 1], 0.05]}, "$maxDistance": 5},
    {"$within": {"$box": [[0, 0], [2, 2]]}},
    {"$within": {"$box": [[0, 0], [2, 2]], "$center": [[5, 5], 1]}},
    {"$geoIntersects": {"$centerSphere": [[1, 1], 0.05]}},
    {"$geoWithin": {"$uniqueDocs": True, "$box": [[0, 0], [2, 2]]}},
]


@pytest.mark.parametrize("operand", OPERANDS, ids=str)
def test_operands_are_read_and_refused_as_mongod_does(collection: Collection[Document], operand: Document) -> None:
    """With both kinds of index, so that mongod refuses nothing for the lack of one."""
    documents: list[Document] = [{"_id": step, "loc": [step, step]} for step in range(10)]
    collection.create_index([("loc", "2dsphere")])
    collection.create_index([("loc", "2d")], min=-1000, max=1000)
    collection.insert_many(documents)
    expected, got = theirs(collection, {"loc": operand}), ours(documents, {"loc": operand})
    assert (sorted(got) if isinstance(got, list) else got) == (
        sorted(expected) if isinstance(expected, list) else expected
    )


@pytest.mark.parametrize("operator", ["$or", "$nor", "$and"])
def test_near_stands_where_mongod_lets_it(collection: Collection[Document], operator: str) -> None:
    documents: list[Document] = [{"_id": step, "loc": [step, step]} for step in range(10)]
    collection.create_index([("loc", "2dsphere")])
    collection.insert_many(documents)
    near = {"loc": {"$near": {"$geometry": POINT, "$maxDistance": 500_000}}}
    for members in ([near], [near, {"_id": {"$gt": 2}}], [near, near], [{"$and": [near]}], [{"$nor": [near]}]):
        filter_ = {operator: members}
        expected, got = theirs(collection, filter_), ours(documents, filter_)
        assert got == expected if isinstance(got, str) else sorted(got) == sorted(expected), filter_


@pytest.mark.slow
def test_many_more_places_are_found_as_mongod_finds_them(collection: Collection[Document]) -> None:
    compare(collection, range(1_000, 1_400))
