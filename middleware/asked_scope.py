"""The ASGI scope as a recording view: it notes what the application looks up, present or absent.

Handlers run on misses only, so hits pay nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress, repeat
from operator import is_not
from types import MappingProxyType
from typing import Any

from quaestor.middleware.asked_entries import KNOWN, AskedEntries, TellingEntries
from quaestor.middleware.asked_names import AskedClient, AskedCondition, AskedName, NoFields
from quaestor.middleware.interface import Scope
from quaestor.read_path.asked_fields import AskedFields
from quaestor.read_path.request import CONDITIONS

_SHOWN_OTHERWISE = frozenset({"headers", "client", "query_string"})
_ABSENT = object()
_ENTRIES = (AskedEntries, TellingEntries)


def recorded(
    scope: Scope, asked_fields: AskedFields, *, shared: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the scope for a handler, as a copy that notes in `asked_fields` what the handler looks up.

    shared: the state from the app's lifespan, the same for every request.
    """
    shown: dict[str, Any] = dict(scope)
    if asked_fields.conditions is None:
        headers = [(AskedName.of(name, asked_fields), value) for name, value in scope["headers"]]
    else:
        headers = [
            ((AskedCondition if name in CONDITIONS else AskedName).of(name, asked_fields), value)
            for name, value in scope["headers"]
        ]
    shown["headers"] = headers or NoFields(asked_fields)
    client = scope.get("client")
    if client is not None:
        shown["client"] = AskedClient.of(client, asked_fields)
    state = shown.get("state") or {}
    same = frozenset(name for name, value in state.items() if name in shared and shared[name] is value)
    shown["state"] = AskedEntries.of(state, asked_fields, "state", same)
    return AskedEntries.of(shown, asked_fields, "scope", KNOWN)


def hand_back(shown: dict[str, Any], scope: Scope, *, changed: bool) -> None:
    """Copy into the request's own scope what the application has added to its view, for the middlewares around the cache.

    changed: copy replaced entries as well.
    """
    # Most entries are the same, and this runs for every miss: C code compares them.
    known = map(scope.get, dict.keys(shown), repeat(_ABSENT))
    for name, value in compress(dict.items(shown), map(is_not, dict.values(shown), known)):
        if name in _SHOWN_OTHERWISE or (name in scope and not (changed or name == "state")):
            continue
        if value.__class__ in _ENTRIES:  # the state; other code may hold the scope's own state object
            if own := dict(dict.items(value)):
                scope.setdefault("state", own).update(own)
        else:
            scope[name] = value


def unrecorded(scope: Scope) -> dict[str, Any]:
    """Return a copy of a scope that notes nothing, for code with a known use of the request.

    The proxy is such code, because its origin's `Vary` names the deciding fields; so is the router's principal, which is in the
    key. The copy leaves out conditions whose use would be noted.
    """
    plain = dict(dict.items(scope) if isinstance(scope, dict) else scope)
    headers = plain["headers"]
    plain["headers"] = [
        (_plain(name), value)
        for name, value in ([] if isinstance(headers, NoFields) else headers)
        if not isinstance(name, AskedCondition)
    ]
    client = plain.get("client")
    if isinstance(client, AskedClient):
        plain["client"] = tuple(tuple.__iter__(client))
    state = plain.get("state")
    if isinstance(state, AskedEntries):
        plain["state"] = dict(dict.items(state))
    return plain


def _plain(name: bytes) -> bytes:
    return bytes.__getitem__(name, slice(None)) if isinstance(name, AskedName) else name
