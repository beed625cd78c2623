"""`quaestor explain`: from the text on the command line to an explanation."""

from __future__ import annotations

from typing import Any

from bson import json_util
from bson.errors import BSONError

from quaestor.clock import system_clock
from quaestor.errors import ConfigurationError, MalformedQueryError
from quaestor.explain import explain
from quaestor.model import Operation, Query, SortSpec


def run(
    text: str,
    *,
    collection: str,
    sort: str | None = None,
    skip: int = 0,
    limit: int = 0,
    projection: str | None = None,
    as_json: bool = False,
) -> str:
    """What to print. text: a find filter, or an aggregation pipeline if it is an array; MongoDB Extended JSON.

    Raises MalformedQueryError, in a sentence, for what is not JSON or what mongod would refuse.
    """
    if "." not in collection.strip("."):
        raise ConfigurationError(f"--collection is database.collection, like demo.flights, not {collection!r}")
    explanation = explain(_query(text, collection, sort, skip, limit, projection), now_ms=system_clock())
    return explanation.to_json() if as_json else explanation.text()


def _query(text: str, namespace: str, sort: str | None, skip: int, limit: int, projection: str | None) -> Query:
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
    """A sort document, or fields with a minus for descending: `scheduled,-_id`."""
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
