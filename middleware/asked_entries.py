"""Entries of the ASGI scope, and of its state, that notice being looked up.

Only what a middleware around the cache can have put there counts: what servers and frameworks put there is the same for
everybody, or in the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
"""Entries of the scope that come from the server or a framework."""


class AskedEntries(dict[str, Any]):
    """Scope, or its `state`, that notes the look-up of what only those around the cache can have put there, found or not.

    where: "scope" or "state".
    same: names that tell nothing: of what is the same for everybody, or has a treatment of its own. What is set or noted comes
        to them.
    """

    __slots__ = ("_asked", "_same", "_where")

    def __init__(self, given: Mapping[str, Any], asked: AskedFields, where: str, same: Iterable[str]) -> None:
        dict.__init__(self, given)
        self._asked = asked
        self._where = where
        self._same = set(same)

    # Frameworks look up dozens of entries for a request: most of these calls end at the first line.

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
        # Overridden, so that copies are made name by name.
        return super().__iter__()

    def get(self, name: str, default: Any = None) -> Any:
        if name not in self._same:
            self._note(name)
        return dict.get(self, name, default)

    def pop(self, name: str, *default: Any) -> Any:
        self._note(name)
        return super().pop(name, *default)

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

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def _note(self, name: object) -> None:
        if name in self._same or not isinstance(name, str):
            return
        self._same.add(name)
        if not name.startswith(_FRAMEWORKS_OWN):
            self._asked.entries.add(f"{self._where}.{name}")

    def _note_all(self) -> None:
        for name in dict.keys(self):
            self._note(name)
