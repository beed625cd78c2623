"""The ASGI scope as a recording view: it notices what the application asks for, found or not.

Handlers run on misses only, so hits pay nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from quaestor.middleware.asked_entries import KNOWN, AskedEntries, TellingEntries
from quaestor.middleware.asked_names import AskedClient, AskedCondition, AskedName, NoFields
from quaestor.middleware.interface import Scope
from quaestor.read_path.asked_fields import AskedFields
from quaestor.read_path.request import CONDITIONS

_SHOWN_OTHERWISE = frozenset({"headers", "client", "query_string"})
_ENTRIES = (AskedEntries, TellingEntries)


def recorded(scope: Scope, asked: AskedFields, *, shared: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """The scope as a handler is shown it, telling asked what it is asked for.

    shared: the state that the app's lifespan has made, the same for every request.
    """
    shown: dict[str, Any] = dict(scope)
    if asked.conditions is None:
        headers = [(AskedName.of(name, asked), value) for name, value in scope["headers"]]
    else:
        headers = [
            ((AskedCondition if name in CONDITIONS else AskedName).of(name, asked), value)
            for name, value in scope["headers"]
        ]
    shown["headers"] = headers or NoFields(asked)
    client = scope.get("client")
    if client is not None:
        shown["client"] = AskedClient.of(client, asked)
    state = shown.get("state") or {}
    same = frozenset(name for name, value in state.items() if name in shared and shared[name] is value)
    shown["state"] = AskedEntries.of(state, asked, "state", same)
    return AskedEntries.of(shown, asked, "scope", KNOWN)


def hand_back(shown: dict[str, Any], scope: Scope, *, changed: bool) -> None:
    """Leave in the request's own scope what the application has put into the one it was shown: whoever wraps us looks there.

    changed: also what it has replaced.
    """
    for name, value in dict.items(shown):
        if name in scope:
            # Nearly all of them: nothing is called for those.
            if scope[name] is value or not (changed or name == "state") or name in _SHOWN_OTHERWISE:
                continue
        elif name in _SHOWN_OTHERWISE:
            continue
        if value.__class__ in _ENTRIES:  # the state: others may hold on to theirs
            if own := dict(dict.items(value)):
                scope.setdefault("state", own).update(own)
        else:
            scope[name] = value


def unrecorded(scope: Scope) -> dict[str, Any]:
    """A copy of a scope of which nothing is noticed: for code whose use of it is known.

    Of the proxy's, because its origin says by what it varies; of the router's principal, because the key has it. Conditions that
    would be noticed are not in it.
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
