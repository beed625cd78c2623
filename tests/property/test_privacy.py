"""Privacy under random requests of strangers: each client gets the answer that the handler would have given to it
alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from quaestor.caching import cached, header, per_user, public
from quaestor.middleware import QuaestorMiddleware
from quaestor.read_path.forwarded_fields import CLAIMS, shown
from quaestor.read_path.query import Tracking
from tests.hand_driven import HandEngine, reads
from tests.raw_asgi import answered

Headers = list[tuple[bytes, bytes]]

TRACKING = Tracking()
CREDENTIALS = (b"authorization", b"cookie", b"x-api-key")
RULES = {
    "/open": (cached(), CREDENTIALS),
    "/me": (cached(scope=per_user(by=header("authorization"))), (b"authorization",)),
    "/shared": (cached(scope=public(), headers=["x-language"], query=["a"]), (b"x-language",)),
    "/posted": (cached(keyed_body=True), CREDENTIALS),
}
"""The declaration of a path, and the fields on which the handler's answer depends: all that are allowed."""

FIELDS: list[tuple[bytes, bytes]] = [
    (b"authorization", b"ann"), (b"authorization", b"bob"), (b"cookie", b"session=ann"), (b"cookie", b"session=bob"),
    (b"x-api-key", b"1"), (b"x-api-key", b"2"), (b"x-language", b"en"), (b"x-language", b"de"),
    (b"x-forwarded-host", b"evil"), (b"x-forwarded-proto", b"https"), (b"forwarded", b"for=1;host=a"),
    (b"forwarded", b"for=2;host=a"), (b"forwarded", b"host=b"), (b"x-original-url", b"/me"), (b"x_forwarded_host", b"evil"),
    (b"host", b"shop.test"), (b"host", b"evil.test"), (b"cache-control", b"no-cache"), (b"if-none-match", b"*"),
]  # fmt: skip
PIECES = [b"a=1", b"a=2", b"b=1", b"utm_source=x", b"utm_x=1;a=evil", b"%75tm_y=2", b"a", b"", b"gclid=1"]


@st.composite
def conversations(draw: st.DrawFn) -> list[tuple[str, str, bytes, Headers, bytes]]:
    """Requests that are much alike: one path, and each of them with or without a few things that all have in common."""
    path = draw(st.sampled_from(sorted(RULES)))
    fields = draw(st.lists(st.sampled_from(FIELDS), min_size=1, max_size=3))
    if path == "/me":
        fields = [*fields, (b"authorization", b"ann"), (b"authorization", b"bob")]
    elif path == "/shared":
        fields = [*fields, (b"x-language", b"en")]
    else:
        fields = [*fields, *(field for field in FIELDS if field[0] == fields[0][0])]
    pieces = draw(st.lists(st.sampled_from(PIECES), min_size=1, max_size=3))
    some_fields = st.lists(st.sampled_from(fields), max_size=1 if path in ("/me", "/shared") else 2)
    some_pieces = st.lists(st.sampled_from(pieces), max_size=2).map(b"&".join)
    bodies = st.sampled_from([b"q", b"r"] if path == "/posted" else [b""])
    request = st.tuples(
        st.just(path), st.just("POST" if path == "/posted" else "GET"), some_pieces, some_fields, bodies
    )
    return draw(st.lists(request, min_size=4, max_size=12))


def answer(scope: Mapping[str, Any], body: bytes) -> Any:
    """Return the handler's answer, as far as its route lets it depend on the request."""
    _, depends = RULES[scope["path"]]
    fields = [(n.decode(), v.decode()) for n, v in scope["headers"] if n in depends or n in (*CLAIMS, b"host")]
    query = parse_qsl(scope["query_string"].decode(), keep_blank_values=True)
    return [scope["method"], scope["path"], sorted(fields), sorted(query, key=lambda pair: pair[0]), body.decode()]


async def app(scope: Any, receive: Any, send: Any) -> None:
    body = (await receive()).get("body", b"")
    reads()
    said = json.dumps(answer(scope, body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": said})


def alone(scope: Mapping[str, Any], body: bytes) -> list[Any]:
    """Return the handler's possible answers to this request: with all of its fields, or with all that count."""
    pieces = [piece for piece in scope["query_string"].split(b"&") if piece]
    only = [piece for piece in pieces if piece.partition(b"=")[0] == b"a"]
    named = [piece for piece in pieces if piece.partition(b"=")[0].replace(b"%75", b"u").decode() not in TRACKING]
    headers = [(name, shown(name, value)) for name, value in scope["headers"]]
    return [
        json.loads(json.dumps(answer({**scope, "query_string": b"&".join(query), "headers": fields}, body)))
        for query in (pieces, only if scope["path"] == "/shared" else named)
        for fields in (scope["headers"], headers)
    ]


@given(conversations())
@settings(max_examples=300, deadline=None)
def test_nobody_is_given_what_somebody_elses_request_decided(
    requests: list[tuple[str, str, bytes, Headers, bytes]],
) -> None:
    async def run() -> None:
        engine = HandEngine()
        middleware = QuaestorMiddleware(app, quaestor=engine, routes={path: rule for path, (rule, _) in RULES.items()})
        for path, method, query, headers, body in [*requests, *requests]:
            if body:
                headers = [*headers, (b"content-length", b"%d" % len(body))]
            scope = {
                "type": "http", "method": method, "scheme": "http", "path": path, "raw_path": path.encode(),
                "query_string": query, "root_path": "", "headers": headers,
            }  # fmt: skip
            status, said = await answered(middleware, dict(scope), body)
            if status == 200:
                assert json.loads(said) in alone(scope, body), (scope, body)
            else:
                assert status == 304

    anyio.run(run)
