"""`quaestor explain --mongo-url` describes a query as capture and the plan treat it on that mongod."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pymongo
import pytest

from quaestor.errors import ConfigurationError, DatabaseError
from quaestor.explain import text_query
from quaestor.explain.text_query import TextQuery, explain_text

Explain = Callable[..., dict[str, Any]]
SEARCH = '{"$text": {"$search": "dogs"}}'


@pytest.fixture
def database(mongo_url: str, prefix: str) -> Iterator[pymongo.database.Database[dict[str, Any]]]:
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        client[prefix].c.insert_one({"_id": 1, "title": "dogs"})
        yield client[prefix]
        client.drop_database(prefix)


@pytest.fixture
def explain(mongo_url: str, prefix: str) -> Explain:
    def run(text: str, collection: str = "c", **options: Any) -> dict[str, Any]:
        output = explain_text(
            TextQuery(text=text, collection=f"{prefix}.{collection}", **options), mongo_url=mongo_url, as_json=True
        )
        result: dict[str, Any] = json.loads(output)
        return result

    return run


def test_a_search_is_exact_where_there_is_a_text_index(database: Any, explain: Explain) -> None:
    assert explain(SEARCH)["match"] == "widened"
    database.c.create_index([("title", "text")])
    explanation = explain(SEARCH)
    assert (explanation["match"], explanation["reason"], explanation["cacheable"]) == ("exact", None, True)


def test_a_definition_can_be_given_instead() -> None:
    index = '{"weights": {"title": 1}, "textIndexVersion": 3}'
    assert (
        json.loads(explain_text(TextQuery(text=SEARCH, collection="d.c", text_index=index), as_json=True))["match"]
        == "exact"
    )
    widened = json.loads(explain_text(TextQuery(text=SEARCH, collection="d.c"), as_json=True))
    assert (widened["match"], "--text-index" in widened["remark"]) == ("widened", True)


def test_a_view_is_explained_as_its_collection(database: Any, explain: Explain) -> None:
    database.create_collection("v", viewOn="c", pipeline=[{"$match": {"open": True}}])
    explanation = explain('{"a": {"$gt": 1}}', "v")
    assert (explanation["namespace"], explanation["index"], explanation["cacheable"]) == (
        f"{database.name}.c",
        "interval on a",
        True,
    )


def test_a_default_collation_widens(database: Any, explain: Explain) -> None:
    database.create_collection("g", collation={"locale": "de"})
    assert "collation 'de'" in explain('{"a": "x"}', "g")["reason"]


def test_recorded_images_need_not_be_recommended(database: Any, explain: Explain) -> None:
    count = '[{"$count": "n"}]'
    assert "pre-images" in explain(count)["remark"]
    database.command("collMod", "c", changeStreamPreAndPostImages={"enabled": True})
    assert "pre-images" not in (explain(count)["remark"] or "")


def test_the_fields_of_compound_indexes_are_among_those_that_matter(database: Any, explain: Explain) -> None:
    """As capture registers it: an order that the query leaves open may be the index's."""
    ask = {"text": '{"kind": 1}', "projection": '{"name": 1}'}
    assert (explain(**ask)["fields"], explain(**ask)["remark"]) == ("kind, name", None)
    database.c.create_index([("kind", 1), ("rank", 1)])
    assert (explain(**ask)["fields"], explain(**ask)["remark"]) == ("kind, name, rank", None)
    unknown = json.loads(explain_text(TextQuery(collection="d.c", **ask), as_json=True))
    assert (unknown["fields"], "--mongo-url" in unknown["remark"]) == ("kind, name", True)


def test_a_query_that_is_not_cached_says_so(database: Any, explain: Explain) -> None:
    database.create_collection("ts", timeseries={"timeField": "at"})
    assert explain("{}", "ts")["not_cached"] == [f"time-series: {database.name}.ts is a time-series collection"]


def test_a_database_that_is_away_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_query, "_PATIENCE_MS", 50)
    with pytest.raises(DatabaseError, match="cannot list"):
        explain_text(TextQuery(text="{}", collection="d.c"), mongo_url="mongodb://127.0.0.1:1/")
    with pytest.raises(ConfigurationError, match="--mongo-url"):
        explain_text(TextQuery(text="{}", collection="d.c"), mongo_url="redis://127.0.0.1")
