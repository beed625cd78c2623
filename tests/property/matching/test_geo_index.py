"""Filters about places are found from every record that they match, and not from records far away."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from quaestor.errors import MalformedQueryError
from quaestor.invalidation.matching.index import QueryIndex
from quaestor.planning.access_entries import GeoSquares
from quaestor.query.compiled import compile_query
from tests.oracle.geo_generator import Generator
from tests.property.matching.test_index import added


def questions(generator: Generator, count: int) -> list[dict[str, Any]]:
    drawn = [
        generator.question()
        if generator.random.random() < 0.6
        else {"loc": generator.near() if generator.random.random() < 0.6 else generator.flat_near()}
        for _ in range(count)
    ]
    return [question for question in drawn if compiles(question)]


def compiles(question: dict[str, Any]) -> bool:
    try:
        compile_query(question)
    except MalformedQueryError:
        return False
    return True


@pytest.mark.parametrize("seed", range(12))
def test_a_record_finds_every_filter_it_matches(seed: int) -> None:
    """A record finds its filters around the poles, on both sides of the 180th meridian,
    and after other filters were removed.
    """
    generator = Generator(seed)
    index = QueryIndex()
    kept = []
    for position, question in enumerate(questions(generator, 80)):
        item = added(index, compile_query(question))
        if position % 4:
            kept.append((question, item))
        else:
            index.remove(item)
    hits = 0
    for position in range(60):
        record = generator.document(position)
        candidates = set(index.candidates(record))
        for question, item in kept:
            if compile_query(question).matches(record):
                hits += 1
                assert item in candidates, (question, record)
    assert hits > 50


def test_an_emptied_index_holds_nothing() -> None:
    index = QueryIndex()
    items = [added(index, compile_query(question)) for question in questions(Generator(3), 60)]
    assert any(isinstance(item.access, GeoSquares) for item in items)
    for item in items:
        index.remove(item)
    assert (len(index), index.always, index._paths) == (0, 0, {})


def test_a_record_tries_only_the_filters_around_it() -> None:
    """Two thousand circles of about eleven kilometres all over the world: a point tries a handful of them."""
    random = Random(7)
    index = QueryIndex()
    for _ in range(2_000):
        place = [random.uniform(-180, 180), math.degrees(math.asin(random.uniform(-1, 1)))]
        added(index, compile_query({"loc": {"$geoWithin": {"$centerSphere": [place, math.radians(0.1)]}}}))
    assert index.always == 0
    tried = [
        len(index.candidates({"loc": {"type": "Point", "coordinates": [random.uniform(-180, 180), 40 + step / 50]}}))
        for step in range(200)
    ]
    assert sum(tried) / len(tried) < 3, tried
