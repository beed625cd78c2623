"""The ASGI scope and its state as dicts that note which entries a handler looks up.

Only entries that a middleware around the cache may have added count. Entries of servers and frameworks are the same for every
request, or part of the key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

from quaestor.read_path.asked_fields import AskedFields

_OF_ASGI = frozenset(
    {
        "type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path", "headers",
        "client", "server", "extensions", "state", "subprotocols",
    }
)  # fmt: skip
_OF_FRAMEWORKS = frozenset(
    {
        "app",
        "router",
        "route",
        "endpoint",
        "path_params",
        "path_template",
        "app_root_path",
        "route_root_path",
        "route_handler",
    }
)
_FRAMEWORKS_OWN = ("quaestor.", "starlette.", "fastapi", "litestar", "_ls_", "_quart.")
KNOWN = _OF_ASGI | _OF_FRAMEWORKS
"""Names of scope entries that the server or a framework sets."""


class AskedEntries(dict[str, Any]):
    """Scope, or its `state`, that notes look-ups of entries that only middlewares around the cache can add, present or absent.

    Frameworks look up dozens of entries of a request, and nearly no request has entries that decide answers. This class serves
    such requests: the dict finds a present entry without a call of Python code, and only absent entries are noted. Made by `of`.

    where: "scope" or "state".
    same: names that are never noted: their values are the same for every request, or are tracked elsewhere.
    """

    __slots__ = ("_asked", "_same", "_where")

    def __init__(self, given: Mapping[str, Any], asked_fields: AskedFields, where: str, same: frozenset[str]) -> None:
        dict.__init__(self, given)
        self._asked = asked_fields
        self._where = where
        self._same: Set[str] = same

    @staticmethod
    def of(given: Mapping[str, Any], asked_fields: AskedFields, where: str, same: frozenset[str]) -> AskedEntries:
        """Return the entries as an AskedEntries, or as TellingEntries if some names are outside `same`."""
        return (AskedEntries if same.issuperset(given) else TellingEntries)(given, asked_fields, where, same)

    def __missing__(self, name: str) -> Any:
        if name not in self._same:
            self._note(name)
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        if dict.__contains__(self, name):
            return True
        if name not in self._same:
            self._note(name)
        return False

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]  # a present entry needs no further call
        except KeyError:
            return default

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def pop(self, name: str, *default: Any) -> Any:
        self.__contains__(name)  # which notes it
        return dict.pop(self, name, *default)

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def _note(self, name: object) -> None:
        if isinstance(name, str) and not name.startswith(_FRAMEWORKS_OWN):
            self._asked.entries.add(f"{self._where}.{name}")


class TellingEntries(AskedEntries):
    """Scope or state with entries that may decide answers: look-ups of present entries are noted as well. An entry is not noted
    again once it was noted, or set by the application."""

    __slots__ = ()

    _same: set[str]

    def __init__(self, given: Mapping[str, Any], asked_fields: AskedFields, where: str, same: frozenset[str]) -> None:
        super().__init__(given, asked_fields, where, same)
        self._same = set(same)

    def __getitem__(self, name: str) -> Any:
        if name not in self._same:
            self._note(name)
        return dict.__getitem__(self, name)

    def __contains__(self, name: object) -> bool:
        if name not in self._same:
            self._note(name)
        return dict.__contains__(self, name)

    def __setitem__(self, name: str, value: Any) -> None:
        self._same.add(name)
        dict.__setitem__(self, name, value)

    def __iter__(self) -> Iterator[str]:
        # Overridden, so that the interpreter copies the dict name by name.
        return super().__iter__()

    def get(self, name: str, default: Any = None) -> Any:
        if name not in self._same:
            self._note(name)
        return dict.get(self, name, default)

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self._same:
            self._note(name)
        return dict.setdefault(self, name, default)

    def update(self, *given: Any, **named: Any) -> None:
        new = dict(*given, **named)
        self._same.update(new)
        dict.update(self, new)

    def items(self) -> Any:
        self._note_all()
        return super().items()

    def values(self) -> Any:
        self._note_all()
        return super().values()

    def _note(self, name: object) -> None:
        if name not in self._same and isinstance(name, str):
            self._same.add(name)
            super()._note(name)

    def _note_all(self) -> None:
        for name in dict.keys(self):
            self._note(name)
