"""Names of request fields, and the address of the client, that notice being looked at.

Frameworks find a field by comparing the names of a request, one after the other, with the one they want. So the names that a
handler is shown note what they are compared with. Whatever else is done with a name (hashed, decoded, taken apart) hands it on to
somebody whose comparisons are not seen, and counts as reading all fields. What some frameworks do with them is known here: Quart
copies the names and goes on comparing, FastAPI's header models are declared by the route, Starlette's tracing decides nothing.
Where the app forwards, copies go on noting, and comparisons within a client of HTTP decide nothing.

What C code reads past a type's methods (`b"".join(names)`, a regular expression) cannot be seen, nor fields that are told
apart by their values alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Self, SupportsIndex

from quaestor.read_path.asked_fields import AskedFields

_COMPARES_COPIES = frozenset({"quart.asgi"})
"""Modules whose copies of names are only compared with others."""
_DECIDES_NOTHING = frozenset({"fastapi.dependencies.utils", "starlette.middleware.opentelemetry"})
"""Modules whose copies decide nothing, or only by fields that the route is known to declare."""
_CLIENTS = frozenset({"aiohttp", "h11", "h2", "hpack", "http", "httpcore", "httpx", "multidict", "requests", "urllib3"})
"""Packages that make a request of the fields that they are given."""
_PASSES_ON = frozenset(
    {"starlette.datastructures", "starlette.requests", "collections.abc", "_collections_abc", __name__}
)


def _caller(depth: int) -> str:
    """The module that a method of ours was called from, past what only passes on."""
    frame: Any = sys._getframe(depth)
    try:
        # This is asked for every comparison of a name, so nothing is called on the way.
        while (module := frame.f_globals["__name__"]) in _PASSES_ON:
            frame = frame.f_back
    except (KeyError, AttributeError):  # nameless code, or the end of the stack
        return ""
    return module if module.__class__ is str else ""


class _Telling:
    """Value that tells somebody of its use."""

    _asked: AskedFields

    def _note(self, other: object) -> None:
        """Note a comparison, unless it belongs to the forwarding of an app that declares it."""
        if not (self._asked.forwards and (isinstance(other, _Telling) or _caller(3).partition(".")[0] in _CLIENTS)):
            self._asked.note(other)

    @classmethod
    def of(cls, value: Any, asked: AskedFields) -> Self:
        """The same value, telling asked."""
        made = cls(value)  # type: ignore[call-arg]
        made._asked = asked
        return made


class AskedName(_Telling, bytes):
    """Name of a field that notes what it is compared with."""

    def __eq__(self, other: object) -> bool:
        # FastAPI parses the cookies for every route, and hands on those that it declares.
        if isinstance(other, _Telling) or other != b"cookie" or _caller(2) not in _DECIDES_NOTHING:
            self._note(other)
        return bytes.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        self._note(other)
        return bytes.__ne__(self, other)

    def __hash__(self) -> int:
        self._asked.note_everything()
        return bytes.__hash__(self)

    def lower(self) -> bytes:
        """The name in lower case, noting as well."""
        return AskedName.of(bytes.lower(self), self._asked)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The name as text: noting as well if it is known who wants it, otherwise everything was read."""
        text = bytes.decode(self, encoding, errors)
        caller = _caller(2)
        if caller in _COMPARES_COPIES:
            return AskedText.of(text, self._asked)
        if caller not in _DECIDES_NOTHING:
            self._asked.note_everything()
            if self._asked.forwards:
                return AskedText.of(text, self._asked)
        return text


class AskedCondition(AskedName):
    """Name of a condition: whoever looks for it is told whether it is there as `Conditions` says, whoever does anything else with
    it has seen it."""

    def __eq__(self, other: object) -> bool:
        if not AskedName.__eq__(self, other):
            return False
        return self._asked.conditions is None or self._asked.conditions.visible()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        _note_condition(self._asked)
        return AskedName.__hash__(self)

    def lower(self) -> bytes:
        """The name in lower case, noting as well."""
        return AskedCondition.of(bytes.lower(self), self._asked)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The name as text, which has been seen then."""
        _note_condition(self._asked)
        return super().decode(encoding, errors)


class AskedText(_Telling, str):
    """Name of a field as text that notes what it is compared with."""

    def __eq__(self, other: object) -> bool:
        self._note(other)
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        self._note(other)
        return str.__ne__(self, other)

    def __hash__(self) -> int:
        self._asked.note_everything()
        return str.__hash__(self)

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """The name as bytes, noting as well where it is forwarded; otherwise everything was read."""
        self._asked.note_everything()
        name = str.encode(self, encoding, errors)
        return AskedName.of(name, self._asked) if self._asked.forwards else name

    def lower(self) -> str:
        """The text in lower case, noting as well."""
        return AskedText.of(str.lower(self), self._asked)

    def title(self) -> str:
        """The text with capitals, noting as well."""
        return AskedText.of(str.title(self), self._asked)


class _Address(_Telling, str):
    """A client's address that notes its use."""


class NoFields(list[tuple[bytes, bytes]]):
    """The fields of a request without any: there is no name to compare with, so looking at all is noticed."""

    def __init__(self, asked: AskedFields) -> None:
        super().__init__()
        self._asked = asked

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        self._asked.note_everything()
        return super().__iter__()


class AskedClient(_Telling, tuple[Any, ...]):
    """Address of the client that notes when it is looked at; that there is one is no secret."""

    def __iter__(self) -> Iterator[Any]:
        self._asked.client = True
        return tuple.__iter__(self)

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        part = tuple.__getitem__(self, at)
        caller = _caller(2)
        if isinstance(part, str) and caller in _COMPARES_COPIES:
            return _Address.of(part, self._asked)
        if caller not in _DECIDES_NOTHING:
            self._asked.client = True
        return part


def _noting(base: type, method: str, note: Callable[[AskedFields], None]) -> Callable[..., Any]:
    plain = getattr(base, method)

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        note(self._asked)
        return plain(self, *args, **kwargs)

    return noted


def _note_condition(asked: AskedFields) -> None:
    if asked.conditions is not None:
        asked.conditions.shown = True


def _note_condition_and_everything(asked: AskedFields) -> None:
    asked.note_everything()
    _note_condition(asked)


def _note_client(asked: AskedFields) -> None:
    asked.client = True


_SPEAKS = frozenset(
    {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__str__", "__repr__", "__format__"}
)
_SILENT = (frozenset(dir(object)) - _SPEAKS) | {"__len__", "fromhex", "maketrans"}


def _note_the_rest(kind: type, base: type, note: Callable[[AskedFields], None]) -> None:
    """Have every method of a type noted that it does not treat itself."""
    for method in dir(base):
        if method not in _SILENT and method not in vars(kind) and callable(getattr(base, method)):
            setattr(kind, method, _noting(base, method, note))


_note_the_rest(AskedName, bytes, AskedFields.note_everything)
_note_the_rest(AskedCondition, bytes, _note_condition_and_everything)
_note_the_rest(AskedText, str, AskedFields.note_everything)
_note_the_rest(_Address, str, _note_client)
for _method in ("__eq__", "__ne__", "__hash__", "__repr__", "__add__", "count", "index", "__contains__"):
    setattr(AskedClient, _method, _noting(tuple, _method, _note_client))
del _method
