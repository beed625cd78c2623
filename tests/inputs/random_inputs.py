"""Vocabulary of inputs: how a request carries one, how a handler reads it, and which records it chooses by it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import bson
from fastapi import Cookie, Depends, Header, HTTPException, Query
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pymongo.asynchronous.collection import AsyncCollection
from starlette.requests import Request

Scope = dict[str, Any]
Records = AsyncCollection[dict[str, Any]]
VALUES = ("", "1", "2", "3")
"""Values of an input; the first: it is absent."""
LETTERS = "abc"
"""Fields of the records that are chosen by the first, second and third input of a handler."""

# The clock: the field of a record that holds its instant in this form, and the handler's bound for it

HOUR = timedelta(hours=1)
TOKYO = timezone(timedelta(hours=9))
Forms = dict[str, tuple[str, Callable[[datetime], Any]]]
RELATIVE: Forms = {
    "an hour ago": ("at", lambda now: now - HOUR),
    "an hour ago, without a fraction": ("at", lambda now: now.replace(microsecond=0) - HOUR),
    "an hour ago, naive": ("at", lambda now: now.replace(tzinfo=None) - HOUR),
    "epoch seconds": ("s", lambda now: int(now.timestamp()) - 3600),
    "epoch float": ("s", lambda now: now.timestamp() - 3600),
    "epoch milliseconds": ("ms", lambda now: int(now.timestamp() * 1000) - 86_400_000),
    "ObjectId": ("oid", lambda now: bson.ObjectId.from_datetime(now - timedelta(seconds=30))),
    "ISO": ("iso", lambda now: (now - HOUR).isoformat()),
    "ISO without a zone": ("iso", lambda now: (now - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%S")),
    "HH:MM:SS": ("time", lambda now: now.strftime("%H:%M:%S")),
}
FLOORED: Forms = {
    "HH:MM": ("time", lambda now: now.strftime("%H:%M")),
    "this minute": ("at", lambda now: now.replace(second=0, microsecond=0)),
    "this hour": ("at", lambda now: now.replace(minute=0, second=0, microsecond=0)),
    "24 hours before this hour": ("at", lambda now: now.replace(minute=0, second=0, microsecond=0) - 24 * HOUR),
    "today's midnight": ("at", lambda now: now.replace(hour=0, minute=0, second=0, microsecond=0)),
    "today's midnight, naive": ("at", lambda now: datetime(now.year, now.month, now.day)),
    "midnight in Tokyo": ("at", lambda now: now.astimezone(TOKYO).replace(hour=0, minute=0, second=0, microsecond=0)),
    "today": ("day", lambda now: now.date().isoformat()),
    "today in Tokyo": ("day", lambda now: now.astimezone(TOKYO).strftime("%Y-%m-%d")),
    "month": ("day", lambda now: now.strftime("%Y-%m")),
    "slot of 15 minutes": ("slot", lambda now: int(now.timestamp()) // 900),
    "slot as a time": ("at", lambda now: now.replace(minute=now.minute // 15 * 15, second=0, microsecond=0)),
    "day number": ("days", lambda now: int(now.timestamp()) // 86_400),
}

CLOCK = RELATIVE | FLOORED


def times(instant: datetime) -> dict[str, Any]:
    """The fields of a record that tell its instant, one in each form."""
    epoch_s = int(instant.timestamp())
    return {
        "at": instant, "s": epoch_s, "ms": epoch_s * 1000, "oid": bson.ObjectId.from_datetime(instant),
        "iso": instant.isoformat(), "time": instant.strftime("%H:%M:%S"), "day": instant.date().isoformat(),
        "slot": epoch_s // 900, "days": epoch_s // 86_400,
    }  # fmt: skip


# How inputs come with a request, and how they are read


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All that one run of a handler can look at.

    given: what dependencies injected, by input.
    now: as its clock says, looked at once.
    kept, unseen: one more collection, by the app's own client and by one without capture.
    said: what nobody can see: a global variable and a file.
    session: of its queries, if they are to see an earlier state.
    """

    request: Request
    given: Mapping[int, Any]
    now: Callable[[], datetime]
    kept: Records
    unseen: Records
    said: Said
    session: Any = None


@dataclass(frozen=True, slots=True)
class Said:
    """Earlier values that the cache cannot see: a global variable, and the content of a file."""

    variable: str = "1"
    content: str = "1"


class Unseen:
    """A global variable and a file."""

    def __init__(self, path: Path) -> None:
        self.variable = ""
        self._path = path
        self.say(Said())

    def say(self, said: Said) -> None:
        """Change both."""
        self.variable = said.variable
        self._path.write_text(said.content)

    def read(self) -> Said:
        """Return the present values of both."""
        return Said(self.variable, self._path.read_text())


Put = Callable[[Scope, str, str], None]
Read = Callable[[Run, str], Any]
Dependency = Callable[[str], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Way:
    """A way in which a handler comes by an input.

    names: that it may be asked for by.
    put: places a value in the scope of a request.
    read: the value, or an awaitable of it; None: a dependency injects it.
    inner: a middleware between the cache and the handler has found it, and left it in the scope.
    """

    names: tuple[str, ...] = ("",)
    put: Put = lambda scope, name, value: None
    read: Read | None = None
    dependency: Dependency | None = None
    inner: bool = False


FIELDS = ("X-Org-Id", "Accept-Language", "User-Agent", "Origin", "X-Role", "X-Tenant-Id", "X-Api-Key", "DPoP")


def put_field(scope: Scope, name: str, value: str) -> None:
    scope["headers"].append((name.lower().encode(), value.encode()))


def put_cookie(scope: Scope, name: str, value: str) -> None:
    scope["headers"].append((b"cookie", f"{name}={value}".encode()))


def put_query(scope: Scope, name: str, value: str) -> None:
    scope["query_string"] = b"&".join(filter(None, (scope["query_string"], f"{name}={value}".encode())))


def put_path(scope: Scope, name: str, value: str) -> None:
    scope["path"] = scope["path"].rpartition("/")[0] + "/" + value


def put_address(scope: Scope, name: str, value: str) -> None:
    scope["client"] = (f"10.0.0.{value}", 1)


def put_entry(scope: Scope, name: str, value: str) -> None:
    scope[name] = value


def put_state(scope: Scope, name: str, value: str) -> None:
    scope.setdefault("state", {})[name] = value


def put_bearer(scope: Scope, name: str, value: str) -> None:
    put_field(scope, "authorization", f"Bearer {value}")


def item(run: Run, name: str) -> str:
    with suppress(KeyError):
        return run.request.headers[name]
    return ""


def iterated(run: Run, name: str) -> str:
    return next((value for field, value in run.request.headers.items() if field == name.lower()), "")


def raw(run: Run, name: str) -> str:
    return next((value.decode() for field, value in run.request.scope["headers"] if field == name.lower().encode()), "")


async def level(records: Records, session: Any) -> Any:
    record = await records.find_one({"_id": "level"}, session=session)
    return record and record["value"]


def declared_field(name: str) -> Callable[..., Any]:
    def dependency(value: str = Header("", alias=name)) -> str:
        return value

    return dependency


def guarded_field(name: str) -> Callable[..., Any]:
    def dependency(request: Request) -> str:
        value = request.headers.get(name, "")
        if value == "3":
            raise HTTPException(403)
        return value

    return dependency


def declared_cookie(name: str) -> Callable[..., Any]:
    def dependency(value: str = Cookie("", alias=name)) -> str:
        return value

    return dependency


def declared_query(name: str) -> Callable[..., Any]:
    def dependency(value: str = Query("", alias=name)) -> str:
        return value

    return dependency


_BEARER = HTTPBearer(auto_error=False)


def bearer(_: str) -> Callable[..., Any]:
    def dependency(token: HTTPAuthorizationCredentials | None = Depends(_BEARER)) -> str:  # noqa: B008
        return token.credentials if token is not None else ""

    return dependency


ASKED: dict[str, Way] = {
    "field: get": Way(FIELDS, put_field, lambda run, name: run.request.headers.get(name, "")),
    "field: []": Way(FIELDS, put_field, item),
    "field: in": Way(FIELDS, put_field, lambda run, name: "1" if name in run.request.headers else ""),
    "field: iterated": Way(FIELDS, put_field, iterated),
    "field: raw": Way(FIELDS, put_field, raw),
    "field: all": Way(FIELDS, put_field, lambda run, name: ",".join(run.request.headers.getlist(name))),
    "field: copied": Way(FIELDS, put_field, lambda run, name: dict(run.request.headers).get(name.lower(), "")),
    "field: declared": Way(FIELDS, put_field, dependency=declared_field),
    "field: guarded": Way(FIELDS, put_field, dependency=guarded_field),
    "field: by a middleware inside": Way(
        ("X-Org-Id",), put_field, lambda run, _: run.request.scope.get("chosen", ""), inner=True
    ),
    "field: by a middleware inside, into the state": Way(
        ("X-Org-Id",), put_field, lambda run, _: getattr(run.request.state, "chosen", ""), inner=True
    ),
    "cookie": Way(("org", "theme"), put_cookie, lambda run, name: run.request.cookies.get(name, "")),
    "cookie: declared": Way(("org", "theme"), put_cookie, dependency=declared_cookie),
    "parameter": Way(("page", "sort"), put_query, lambda run, name: run.request.query_params.get(name, "")),
    "parameter: declared": Way(("page", "sort"), put_query, dependency=declared_query),
    "parameter: raw": Way(("page",), put_query, lambda run, _: run.request.url.query[-1:]),
    "path": Way(("",), put_path, lambda run, _: run.request.path_params["part"]),
    "address": Way(("",), put_address, lambda run, _: run.request.client.host[-1] if run.request.client else ""),
    "entry": Way(("org",), put_entry, lambda run, name: run.request.scope.get(name, "")),
    "state": Way(("org",), put_state, lambda run, name: getattr(run.request.state, name, "")),
    "user": Way(("user",), put_entry, lambda run, name: run.request.scope.get(name, "")),
    "token": Way(("",), put_bearer, lambda run, _: run.request.headers.get("authorization", "")[-1:]),
    "security scheme": Way(("",), put_bearer, dependency=bearer),
}
OF_DATABASE: dict[str, Way] = {
    "setting": Way(read=lambda run, _: level(run.kept, run.session)),
    "setting, by a client without capture": Way(read=lambda run, _: level(run.unseen, run.session)),
}
OF_CLOCK: dict[str, Way] = {
    "clock": Way(tuple(RELATIVE), read=lambda run, name: CLOCK[name][1](run.now())),
    "clock: its unit": Way(tuple(FLOORED), read=lambda run, name: CLOCK[name][1](run.now())),
}
SEEN = ASKED | OF_DATABASE | OF_CLOCK
"""Everything that capture has to notice."""
UNSEEN: dict[str, Way] = {
    "global": Way(read=lambda run, _: run.said.variable),
    "file": Way(read=lambda run, _: run.said.content),
}
"""Inputs that the cache cannot see: verification has to find them."""
WAYS = SEEN | UNSEEN


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a handler.

    way: of WAYS. name: that it is asked for by.
    unlike: records are chosen that differ from what it says, or lie before it.
    """

    way: str
    name: str = ""
    unlike: bool = False

    @property
    def is_clock(self) -> bool:
        return self.way in OF_CLOCK

    def put(self, scope: Scope, value: str) -> None:
        """Place a value in a request; an empty one is absent."""
        if value:
            WAYS[self.way].put(scope, self.name, value)

    async def read(self, run: Run, position: int) -> Any:
        """Return the input's value for this run."""
        read = WAYS[self.way].read
        value = run.given[position] if read is None else read(run, self.name)
        return await value if isinstance(value, Awaitable) else value

    def clause(self, value: Any, position: int) -> dict[str, Any]:
        """The records that are chosen by what it says."""
        if self.is_clock:
            return {CLOCK[self.name][0]: {"$lt" if self.unlike else "$gte": value}}
        return {LETTERS[position]: {"$ne": value} if self.unlike else value}
