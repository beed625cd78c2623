"""`$jsonSchema` against the real mongod: the same schema on the same documents, valid there as here, or refused by both."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pymongo
import pytest
from bson.decimal128 import Decimal128
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.query.json_schema import compile_schema
from tests.oracle.expressions.judge import DECODING, Document
from tests.oracle.schema_generator import SchemaGenerator, document

DOCUMENTS = 40
SCHEMAS = 20
REFUSED = "refused"


@pytest.fixture(scope="module")
def collection(mongo_url: str) -> Iterator[Collection[Document]]:
    client: pymongo.MongoClient[Document] = pymongo.MongoClient(mongo_url)
    with client:
        database = client.get_database("schema_oracle", codec_options=DECODING)
        yield database.get_collection("documents")
        client.drop_database("schema_oracle")


def filled(collection: Collection[Document], random: Random, count: int = DOCUMENTS) -> list[Document]:
    """Fill the collection with new documents, numbered by `n`, and return them as the driver decodes them.

    The documents are read back, because the server puts the time into an empty timestamp.
    """
    documents = [document(random) | {"n": number} for number in range(count)]
    for position, member in enumerate(documents):
        member["_id"] = {"n": position, "was": member["_id"]}
    collection.delete_many({})
    collection.insert_many(documents)
    return list(collection.find(sort=[("n", 1)]))


def ours(schema: Document, documents: Sequence[Document]) -> list[int] | str | None:
    """Numbers of the valid documents; None if this engine does not claim to know."""
    try:
        is_valid = compile_schema(schema)
    except MalformedQueryError:
        return REFUSED
    except UnsupportedQueryError:
        return None
    return [member["n"] for member in documents if is_valid(member)]


def theirs(collection: Collection[Document], schema: Document) -> list[int] | str:
    try:
        return sorted(member["n"] for member in collection.find({"$jsonSchema": schema}, {"n": 1}))
    except OperationFailure:
        return REFUSED


def disagreement(collection: Collection[Document], schema: Document, documents: Sequence[Document]) -> str | None:
    mine = ours(schema, documents)
    if mine is None:
        return None
    yours = theirs(collection, schema)
    if mine == yours:
        return None
    differing: Any = ""
    if isinstance(mine, list) and isinstance(yours, list):
        differing = next(documents[number] for number in set(mine) ^ set(yours))
    return f"{schema!r}: {mine}, mongod says {yours}; the first document: {differing!r}"


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(random=st.randoms(use_true_random=False))
def test_schemas_match_as_in_mongod(collection: Collection[Document], random: Random) -> None:
    """Drawn by Hypothesis, so that a disagreement shrinks."""
    difference = disagreement(collection, SchemaGenerator(random).schema(2), filled(collection, random, 6))
    assert difference is None, difference


@pytest.mark.parametrize("divisor", [float("inf"), Decimal128("Infinity"), float("nan")])
@pytest.mark.parametrize("inside", [False, True])
def test_a_divisor_that_is_no_number_is_refused_where_mongod_refuses_it(
    collection: Collection[Document], divisor: Any, inside: bool
) -> None:
    keyword: Document = {"multipleOf": divisor}
    documents = filled(collection, Random(1))
    for schema in (keyword, {"items": keyword}, {"allOf": [keyword]}, {"dependencies": {"k": keyword}}):
        difference = disagreement(collection, {"properties": {"k": schema}} if inside else schema, documents)
        assert difference is None, difference


def check_seeds(collection: Collection[Document], seeds: range) -> None:
    for seed in seeds:
        random = Random(seed)
        documents = filled(collection, random)
        generator = SchemaGenerator(random)
        for number in range(SCHEMAS):
            difference = disagreement(collection, generator.schema(number % 3), documents)
            assert difference is None, f"seed {seed}: {difference}"


def test_seeded_schemas_match_as_in_mongod(collection: Collection[Document]) -> None:
    """3,000 schemas on 40 documents each."""
    check_seeds(collection, range(150))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_fresh_seeds_match_as_in_mongod(collection: Collection[Document]) -> None:
    """A new seed every time, printed: 40,000 schemas on 40 documents each."""
    start = int(os.environ.get("QUAESTOR_ORACLE_SEED") or Random().randrange(10**9))
    print(f"QUAESTOR_ORACLE_SEED={start}")
    check_seeds(collection, range(start, start + 2000))
