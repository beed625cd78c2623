"""Explanation of a query in text form, for `quaestor explain` and for `explain` of the admin API."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import anyio
from bson import json_util
from bson.errors import BSONError
from pymongo import MongoClient
from pymongo.errors import ConfigurationError as PyMongoConfigurationError

from quaestor.capture.catalog import Catalog
from quaestor.capture.recorder import DEFAULT_CLOCK_WINDOW_MS
from quaestor.capture.text_indexes import reduced
from quaestor.clock import system_clock
from quaestor.errors import ConfigurationError, MalformedQueryError
from quaestor.explain.explanation import explain
from quaestor.model import CapturedRead, Operation, Query, Reason, SortSpec

_PATIENCE_MS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TextQuery:
    """Query that is given as text.

    text: a find filter, or an aggregation pipeline if it is an array; MongoDB Extended JSON.
    collection: database and collection, with a dot.
    text_index: definition of the collection's text index, as list_indexes gives it.
    """

    text: str
    collection: str
    sort: str | None = None
    skip: int = 0
    limit: int = 0
    projection: str | None = None
    text_index: str | None = None


def explain_text(
    asked: TextQuery,
    *,
    as_json: bool = False,
    mongo_url: str | None = None,
    client: MongoClient[dict[str, Any]] | None = None,
    clock_window_ms: int = DEFAULT_CLOCK_WINDOW_MS,
) -> str:
    """Return the explanation, as text or as JSON.

    mongo_url: database to look up the collection: view, capped, collation, images, text index, compound indexes.
    client: looks the collection up instead.
    clock_window_ms: the setting of the app that runs the query.

    Raises MalformedQueryError for a text that is not JSON, or that mongod would refuse; DatabaseError.
    """
    if "." not in asked.collection.strip("."):
        raise ConfigurationError(f"--collection is database.collection, like demo.flights, not {asked.collection!r}")
    query = _query(asked)
    if asked.text_index is not None:
        query = replace(query, text_index=reduced(_object("--text-index", asked.text_index)))
    images: bool | None = None
    reasons: tuple[Reason, ...] = ()
    if client is not None:
        query, reasons, images = _looked_up(query, client)
    elif mongo_url is not None:
        query, reasons, images = _looked_up_at(query, mongo_url)
    explanation = explain(
        query,
        now_ms=system_clock(),
        clock_window_ms=clock_window_ms,
        images=images,
        indexes_known=client is not None or mongo_url is not None,
        reasons=reasons,
    )
    return explanation.to_json() if as_json else explanation.text()


def _looked_up_at(query: Query, mongo_url: str) -> tuple[Query, tuple[Reason, ...], bool | None]:
    try:
        with MongoClient[dict[str, Any]](mongo_url, serverSelectionTimeoutMS=_PATIENCE_MS) as client:
            return _looked_up(query, client)
    except PyMongoConfigurationError as error:
        raise ConfigurationError(f"--mongo-url is no URL of a MongoDB: {error}") from error


def _looked_up(query: Query, client: MongoClient[dict[str, Any]]) -> tuple[Query, tuple[Reason, ...], bool | None]:
    """Query as capture would register it, reasons why capture would not, and whether its collection records images."""
    catalog = Catalog(client)  # a separate one: an explained query need not be followed from now on
    definition = catalog.definition(query.namespace)
    read = CapturedRead(query=query, read_at=1, ids=None)
    for _ in range(2):  # a definition that was seen for the first time is not trusted
        outcome = anyio.run(catalog.examine, [read])
    if not outcome.reads:
        return query, outcome.reasons, definition.images
    resolved = outcome.reads[0].query
    return resolved, outcome.reasons, catalog.definition(resolved.namespace).images


def _query(text_query: TextQuery) -> Query:
    text, namespace = text_query.text, text_query.collection
    sort, skip, limit, projection = text_query.sort, text_query.skip, text_query.limit, text_query.projection
    given = _parse("the filter", text)
    if isinstance(given, list):
        if sort is not None or skip or limit or projection is not None:
            raise MalformedQueryError(
                "a pipeline brings its own $sort, $skip, $limit and $project: leave the options out"
            )
        if not all(isinstance(stage, dict) for stage in given):
            raise MalformedQueryError(f'the stages of a pipeline are objects like {{"$match": {{}}}}, not {text}')
        return Query(namespace=namespace, operation=Operation.AGGREGATE, filter={}, pipeline=tuple(given))
    return Query(
        namespace=namespace,
        operation=Operation.FIND,
        filter=_object("the filter", text),
        sort=_sort(sort) if sort else (),
        skip=skip,
        limit=limit,
        projection=_object("--projection", projection) if projection else None,
    )


def _sort(text: str) -> SortSpec:
    """Sort from a document, or from fields with a minus for descending: `scheduled,-_id`."""
    if text.lstrip().startswith(("{", "[")):
        return tuple(_object("--sort", text).items())
    fields = [field.strip() for field in text.split(",")]
    if any(not field.lstrip("-") or not field.lstrip("-").isprintable() for field in fields):
        raise MalformedQueryError(f'--sort is fields like scheduled,-_id or an object like {{"at": -1}}, not {text!r}')
    return tuple((field.removeprefix("-"), -1 if field.startswith("-") else 1) for field in fields)


def _object(name: str, text: str) -> dict[str, Any]:
    parsed = _parse(name, text)
    if not isinstance(parsed, dict):
        raise MalformedQueryError(f'{name} is a JSON object like {{"origin": "JFK"}}, not {text}')
    return parsed


def _parse(name: str, text: str) -> Any:
    try:
        return json_util.loads(text)
    except (ValueError, TypeError, KeyError, AttributeError, BSONError) as error:
        raise MalformedQueryError(f"{name} is not (extended) JSON: {error}: {text}") from error
