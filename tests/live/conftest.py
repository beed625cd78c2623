"""Fixtures of the tests of live queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.live.socket_site import Site


@pytest.fixture
def items(site: Site) -> Any:
    """The records of the module's own site, none at first. The collection exists: the first insert into a new one makes the grid
    read the result anew."""
    site.database.items.insert_one({"_id": "first"})
    site.database.items.delete_many({})
    yield site.database.items
    site.database.items.delete_many({})


@pytest.fixture
def accounts(site: Site) -> Iterator[Any]:
    """Records with post-images of the module's own site, none at first."""
    site.database.create_collection("accounts", changeStreamPreAndPostImages={"enabled": True})
    yield site.database.accounts
    site.database.drop_collection("accounts")
