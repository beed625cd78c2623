"""Requests about named things in the folder: a name in the query, and changes of one thing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from urllib.parse import parse_qs

from quaestor.admin.request import Refused


def named(query: bytes, kind: str) -> str:
    """Return the name in a query string. Raises Refused. kind: of the named thing, for the message."""
    names = parse_qs(query.decode("latin-1"), keep_blank_values=True, max_num_fields=4).get("name", [])
    if len(names) != 1:
        raise Refused(400, f"name a {kind}: ?name=...")
    return names[0]


def change_of(body: Any, changes: Collection[str]) -> tuple[str, str]:
    """Return change and name of {"do": ..., "name": ...}. Raises Refused."""
    if (
        not isinstance(body, dict)
        or body.keys() != {"do", "name"}
        or not all(isinstance(text, str) for text in body.values())
    ):
        raise Refused(400, 'the body is {"do": ..., "name": ...}')
    if body["do"] not in changes:
        raise Refused(400, f"do is one of {', '.join(changes)}")
    return body["do"], body["name"]
