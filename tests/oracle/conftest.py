"""Fixtures of the oracles of followed results."""

from __future__ import annotations

from collections.abc import Iterator

import pymongo
import pytest

from quaestor.model import Document


@pytest.fixture
def client(mongo_url: str) -> Iterator[pymongo.MongoClient[Document]]:
    with pymongo.MongoClient[Document](mongo_url) as client:
        yield client
