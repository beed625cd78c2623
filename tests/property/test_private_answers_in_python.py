"""Users of one Python client never receive each other's private answers, with any field as the server's distinction.

The fields are the ones of the real middleware. Catches: a `Vary` that lacks a field that `by` reads;
a client that keys its copies by less than `Vary` names; an answer kept although nothing distinguishes its users.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from quaestor import QuaestorTransport
from quaestor.caching import By, Scope, cached, cookie, header, per_role, per_user
from quaestor.middleware import QuaestorMiddleware
from tests.hand_driven import FilledSketch, HandEngine, reads

ROLES = {"ann": "staff", "bob": "guest", "cid": "staff"}
FIELDS = ("authorization", "cookie", "x-user-token", "x-tenant", "accept-language")


def field(scope: Mapping[str, Any], name: str) -> str | None:
    """The value of a request field; of `cookie`, of the cookie `session`."""
    values = [value.decode() for field, value in scope["headers"] if field == name.encode()]
    if name == "cookie":
        values = [
            text.partition("=")[2] for value in values for text in value.split("; ") if text.startswith("session=")
        ]
    return values[0] if values else None


def either(scope: Mapping[str, Any]) -> str | None:
    """Two fields decide, the second only without the first."""
    return field(scope, "authorization") or field(scope, "x-user-token")


def of_the_scope(scope: Mapping[str, Any]) -> str | None:
    """Return the user that a part around the middleware knows, and that no field names."""
    user = scope["state"]["user"]
    assert user is None or isinstance(user, str)
    return user


def role(scope: Mapping[str, Any]) -> str | None:
    return ROLES.get(field(scope, "x-user-token") or "")


def reading(name: str) -> By:
    """A `by` of an application's own."""
    return lambda scope: field(scope, name)


SCOPES: dict[str, tuple[Scope, By]] = {
    "cookie()": (per_user(by=cookie("session")), reading("cookie")),
    **{f"header({name})": (per_user(by=header(name)), reading(name)) for name in ("authorization", "x-user-token")},
    "named": (per_user(by=reading("x-user-token"), reads=["X-User-Token"]), reading("x-user-token")),
    "named, one of two": (per_user(by=either, reads=["authorization", "x-user-token"]), either),
    "not named": (per_user(by=reading("x-user-token")), reading("x-user-token")),
    "scope": (per_user(by=of_the_scope), of_the_scope),
    "role, named": (per_role(by=role, reads=["x-user-token"]), role),
    "role, not named": (per_role(by=role), role),
}
"""The declaration, and the users of an answer."""
KEPT = {name for name, (scope, _) in SCOPES.items() if scope.reads is not None}

Request = tuple[str | None, dict[str, str]]
"""The user that no field names, and the fields."""


@st.composite
def conversations(draw: st.DrawFn) -> tuple[str, list[Request]]:
    """Requests of a few users through one client, much alike, each of them again."""
    name = draw(st.sampled_from(sorted(SCOPES)))
    users = st.sampled_from(["ann", "bob", "cid"])

    def fields(names: list[str], user: str) -> dict[str, str]:
        return {name: f"session={user}" if name == "cookie" else user for name in names}

    request = st.builds(
        lambda who, names, user: (who, fields(names, user)),
        st.none() | users, st.lists(st.sampled_from(FIELDS), max_size=2, unique=True), users,
    )  # fmt: skip
    requests = draw(st.lists(request, min_size=2, max_size=8))
    return name, draw(st.permutations([*requests, *requests]))


class Served:
    """One page behind the middleware, and a client that all users share."""

    def __init__(self, scope: Scope, by: By, browser_ttl: int | None) -> None:
        self.who: str | None = None
        self._by = by
        routes = {"/me": cached(scope=scope, browser_ttl=browser_ttl)}
        self.middleware = QuaestorMiddleware(self._page, quaestor=HandEngine(sketch=FilledSketch()), routes=routes)
        self.transport = QuaestorTransport("http://shop.test", transport=httpx.ASGITransport(self._around))
        self.client = httpx.AsyncClient(transport=self.transport, base_url="http://shop.test")

    async def _around(self, scope: Any, receive: Any, send: Any) -> None:
        """The middleware, and around it something that knows who asks."""
        await self.middleware({**scope, "state": {"user": self.who}}, receive, send)

    async def _page(self, scope: Any, receive: Any, send: Any) -> None:
        reads()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": repr(self._by(scope)).encode()})

    async def get(self, request: Request) -> httpx.Response:
        self.who, fields = request
        return await self.client.get("/me", headers=fields)

    def expected(self, request: Request) -> str:
        who, fields = request
        scope = {"headers": [(n.encode(), v.encode()) for n, v in fields.items()], "state": {"user": who}}
        return repr(self._by(scope))


@given(conversations(), st.none() | st.just(300))
@settings(max_examples=150, deadline=None)
def test_users_of_one_client_are_given_their_own_answers(
    conversation: tuple[str, list[Request]], browser_ttl: int | None
) -> None:
    name, requests = conversation

    async def run() -> None:
        served = Served(*SCOPES[name], browser_ttl)
        await served.transport.refresh()
        for request in requests:
            answer = await served.get(request)
            assert answer.text == served.expected(request), (name, request, dict(answer.headers))
            if answer.extensions["quaestor"] == "memory":
                assert name in KEPT

    anyio.run(run)


def test_answers_that_fields_tell_apart_are_kept_and_the_rest_is_not() -> None:
    """The second read of a user comes from memory if, and only if, the route's declaration names what decides."""
    ann: Request = ("ann", {name: "session=ann" if name == "cookie" else "ann" for name in FIELDS})

    async def run() -> None:
        for name, (scope, by) in SCOPES.items():
            served = Served(scope, by, None)
            await served.transport.refresh()
            answers = [await served.get(ann) for _ in range(3)]
            assert (answers[-1].extensions["quaestor"] == "memory") is (name in KEPT), name
            assert ("quaestor-ttl" in answers[-1].headers) is (name in KEPT), name
            assert (answers[-1].headers["vary"] == "*") is (name not in KEPT), name

    anyio.run(run)
