"""Names of request fields, and the address of the client, that note how a handler uses them.

Frameworks find a field by comparing the names of a request, one after the other, with the wanted name. Therefore the names in a
handler's scope note their comparands. Any other use of a name (hashing, decoding, slicing) makes a copy whose comparisons are
not seen; that counts as reading all fields. Some frameworks are known here. Quart copies the names and goes on comparing. The
route declares FastAPI's header models. Starlette's tracing decides nothing.

Where the app forwards, copies by `decode`, `encode`, `lower` and `title` go on noting. Any other use makes a copy that cannot
note, so it counts as a look into all fields (`AskedFields.examined`). Uses by an HTTP client for its own request decide nothing.

Uses by C code that bypass a type's methods (`b"".join(names)`, a regular expression, `multidict`) cannot be seen. Neither can
fields that a handler distinguishes by their values alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self, SupportsIndex

from quaestor.read_path.asked_fields import AskedFields

_COMPARES_COPIES = frozenset({"quart.asgi"})
"""Modules that only compare their copies of names."""
_DECIDES_NOTHING = frozenset({"fastapi.dependencies.utils", "starlette.middleware.opentelemetry"})
"""Modules whose copies decide nothing, or only by fields that the route declares."""
_CLIENTS = frozenset({"aiohttp", "h11", "h2", "hpack", "http", "httpcore", "httpx", "multidict", "requests", "urllib3"})
"""Packages that make a request out of the fields they receive."""
_CLIENT_MODULES = frozenset({"urllib.request"})
"""Modules that do the same, in packages that do other things as well. `httpx` calls this one for its cookies."""
_COPIES_WITHOUT_NOTING = frozenset({"litestar"})
"""Packages that keep the names in a mapping of C code, which compares them unseen."""
_PASSES_ON = frozenset(
    {"starlette.datastructures", "starlette.requests", "collections.abc", "_collections_abc", __name__}
)


def _caller(depth: int) -> str:
    """Return the name of the module that called a method of this module, skipping modules that only pass values on."""
    frame: Any = sys._getframe(depth)
    try:
        # This runs at every comparison of a name, so it calls nothing.
        while (module := frame.f_globals["__name__"]) in _PASSES_ON:
            frame = frame.f_back
    except (KeyError, AttributeError):  # nameless code, or the end of the stack
        return ""
    return module if module.__class__ is str else ""


class _Kinds(dict[str, bool | None]):
    """Kinds of modules by name: True for a client's, None for code that only passes values on, False for the rest."""

    def __missing__(self, module: str) -> bool | None:
        client = module.partition(".")[0] in _CLIENTS or module in _CLIENT_MODULES
        kind = self[module] = client or (None if module in _PASSES_ON else False)
        return kind


_KINDS = _Kinds()


def _of_client(depth: int) -> bool:
    """Whether an HTTP client uses a name for its own request.

    A client's mapping (`httpx.Headers`) may also serve other code as a copy of the fields. A use by a method of the mapping that
    other code called is that code's use.
    """
    frame: Any = sys._getframe(depth)
    entry: Any = None
    try:
        # This runs at every comparison that a client makes, so it calls nothing.
        while (kind := _KINDS[frame.f_globals["__name__"]]) is not False:
            if kind:
                entry = frame
            frame = frame.f_back
    except (KeyError, AttributeError, TypeError):  # nameless code, or the end of the stack
        pass
    if entry is None:
        return False
    code = entry.f_code
    return not (code.co_argcount and isinstance(entry.f_locals.get(code.co_varnames[0]), Mapping))


class _Telling:
    """Value that notes its use in AskedFields."""

    _asked: AskedFields

    def _note(self, other: object) -> None:
        """Note a comparison, unless a forwarding app's HTTP client or the copying of two names made it."""
        if not (self._asked.forwards and (isinstance(other, _Telling) or _of_client(3))):
            self._asked.note(other)

    @classmethod
    def of(cls, value: Any, asked_fields: AskedFields) -> Self:
        """Return the same value, noting its use in `asked_fields`."""
        made = cls(value)  # type: ignore[call-arg]
        made._asked = asked_fields
        return made


class AskedName(_Telling, bytes):
    """Name of a field that notes its comparands."""

    def __eq__(self, other: object) -> bool:
        # FastAPI parses the cookies for every route, and passes on the declared ones only.
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
        """Return the name in lower case; the copy notes as well."""
        return AskedName.of(bytes.lower(self), self._asked)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the name as text. The copy notes as well for known callers; for others all fields count as read."""
        text = bytes.decode(self, encoding, errors)
        caller = _caller(2)
        if caller in _COMPARES_COPIES:
            return AskedText.of(text, self._asked)
        if caller not in _DECIDES_NOTHING:
            self._asked.note_everything()
            if self._asked.forwards:
                self._asked.examined |= caller.partition(".")[0] in _COPIES_WITHOUT_NOTING
                return AskedText.of(text, self._asked)
        return text


class AskedCondition(AskedName):
    """Name of a condition, such as `If-None-Match`. A comparison finds it only if `Conditions` makes conditions visible; any
    other use counts as having seen the condition."""

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
        """Return the name in lower case; the copy notes as well."""
        return AskedCondition.of(bytes.lower(self), self._asked)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the name as text, and note the condition as seen."""
        _note_condition(self._asked)
        return super().decode(encoding, errors)


class AskedText(_Telling, str):
    """Name of a field as text that notes its comparands."""

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
        """Return the name as bytes. All fields count as read; in a forwarding app the copy notes as well."""
        self._asked.note_everything()
        name = str.encode(self, encoding, errors)
        return AskedName.of(name, self._asked) if self._asked.forwards else name

    def lower(self) -> str:
        """Return the text in lower case; the copy notes as well."""
        return AskedText.of(str.lower(self), self._asked)

    def title(self) -> str:
        """Return the text with capitals; the copy notes as well."""
        return AskedText.of(str.title(self), self._asked)


class _Address(_Telling, str):
    """A client's address that notes its use."""


class NoFields(list[tuple[bytes, bytes]]):
    """The fields of a request without any. There is no name to compare, so any iteration counts as reading all fields."""

    def __init__(self, asked_fields: AskedFields) -> None:
        super().__init__()
        self._asked = asked_fields

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        self._asked.note_everything()
        return super().__iter__()


class AskedClient(_Telling, tuple[Any, ...]):
    """Address of the client that notes every look at it, except at whether there is one."""

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


def _appended(base: Any, note: Callable[[AskedFields], None]) -> Callable[..., Any]:
    def noted(self: Any, other: Any) -> Any:
        note(self._asked)
        return other + base.__getitem__(self, slice(None))

    return noted


def _note_use(asked_fields: AskedFields) -> None:
    """Note a use whose result cannot note its comparands."""
    asked_fields.note_everything()
    if asked_fields.forwards and not asked_fields.examined:
        asked_fields.examined = not _of_client(2)


def _note_condition(asked_fields: AskedFields) -> None:
    if asked_fields.conditions is not None:
        asked_fields.conditions.shown = True


def _note_condition_and_everything(asked_fields: AskedFields) -> None:
    _note_use(asked_fields)
    _note_condition(asked_fields)


def _note_client(asked_fields: AskedFields) -> None:
    asked_fields.client = True


_SPEAKS = frozenset(
    {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__str__", "__repr__", "__format__"}
)
_SILENT = (frozenset(dir(object)) - _SPEAKS) | {"__len__", "fromhex", "maketrans"}


def _note_the_rest(kind: type, base: type, note: Callable[[AskedFields], None]) -> None:
    """Replace every method that a type does not define itself by one that notes the use."""
    for method in dir(base):
        if method not in _SILENT and method not in vars(kind) and callable(getattr(base, method)):
            setattr(kind, method, _noting(base, method, note))
    # Without this method, C code would append the value to a plain text unseen.
    setattr(kind, "__radd__", _appended(base, note))  # noqa: B010


_note_the_rest(AskedName, bytes, _note_use)
_note_the_rest(AskedCondition, bytes, _note_condition_and_everything)
_note_the_rest(AskedText, str, _note_use)
_note_the_rest(_Address, str, _note_client)
for _method in ("__eq__", "__ne__", "__hash__", "__repr__", "__add__", "count", "index", "__contains__"):
    setattr(AskedClient, _method, _noting(tuple, _method, _note_client))
del _method
