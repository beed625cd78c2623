"""`$text` on generated texts in nine languages: the same records with the same scores as from a real mongod."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pymongo
import pytest
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from quaestor.errors import MalformedQueryError
from quaestor.query import compile_query
from quaestor.query.text import TextIndex
from quaestor.query.text.operator import search_of
from tests.oracle.disagreements import require_none
from tests.oracle.text_generator import Document, Generator

RECORDS = 40
SEARCHES = 60
Scores = dict[Any, float]


@pytest.fixture
def collection(mongo_url: str, prefix: str) -> Iterator[Collection[Document]]:
    with pymongo.MongoClient[Document](mongo_url) as client:
        yield client[prefix]["texts"]
        client.drop_database(prefix)


def theirs(collection: Collection[Document], filter_: Document) -> Scores | str:
    try:
        documents = collection.find(filter_, {"_id": 1, "score": {"$meta": "textScore"}})
        return {document["_id"]: document["score"] for document in documents}
    except OperationFailure:
        return "error"


def ours(documents: list[Document], filter_: Document, index: TextIndex) -> Scores | str:
    try:
        query = compile_query(filter_, index)
    except MalformedQueryError:
        return "error"
    search = search_of(query.root)
    assert search is not None
    return {document["_id"]: search.score(document) for document in documents if query.matches(document)}


def same(identifier: Any, expected: Scores, got: Scores) -> bool:
    return abs(expected.get(identifier, -1) - got.get(identifier, -1)) < 1e-9


def disagreements(collection: Collection[Document], seed: int) -> tuple[int, list[str]]:
    """How many searches found something, and what was answered differently."""
    generator = Generator(seed)
    keys, options = generator.index()
    collection.drop()
    collection.create_index(keys, **options)
    documents = [generator.document(position) for position in range(RECORDS)]
    collection.insert_many(documents)
    definition = next(index for index in collection.list_indexes() if "weights" in index)
    matches, wrong = 0, []
    for _ in range(SEARCHES):
        filter_ = {"$text": generator.search()}
        expected, got = theirs(collection, filter_), ours(documents, filter_, TextIndex.of(definition))
        matches += bool(got) and got != "error"
        if expected == got or (isinstance(expected, dict) and expected == pytest.approx(got, rel=1e-9)):
            continue
        differing = [
            document
            for document in documents
            if isinstance(expected, str) or isinstance(got, str) or not same(document["_id"], expected, got)
        ]
        wrong.append(
            f"seed {seed}, {definition['weights']}, {definition['default_language']}: {filter_!r}\n"
            f"  mongod {expected}\n  ours {got}\n  {differing[:2]!r}"
        )
    return matches, wrong


def compare(collection: Collection[Document], seeds: range) -> None:
    require_none(partial(disagreements, collection), seeds, questions=SEARCHES)


def test_texts_are_found_and_scored_as_mongod_does(collection: Collection[Document]) -> None:
    compare(collection, range(30))


@pytest.mark.slow
def test_many_more_texts_are_found_and_scored_as_mongod_does(collection: Collection[Document]) -> None:
    compare(collection, range(1_000, 1_300))
