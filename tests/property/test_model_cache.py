"""Random requests of several users, writes, clocks and purges against a model of the allowed answers.

No client ever gets another user's answer, or an answer in another language or for another query. No client gets an
invalidated or purged answer, a part of another answer than it names, or a 304 for another answer than its own.
No answer of one user may be kept for others. Catches: a key that lacks a part; a check that one of the many ways to an
answer forgets (plain hit, declared hit, condition, range, HEAD, stale, pass-by).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from quaestor.caching import cached, header, per_role, per_user, private, public
from quaestor.errors import RegistrationRefusedError
from quaestor.middleware import QuaestorMiddleware
from quaestor.model import CapturedRead, Version
from quaestor.ports import Registered
from tests.hand_driven import HandEngine, HandRegistry, TaggingCdn, reads

ROLES = {"ann": "staff", "cid": "staff", "bob": "guest"}
TTL_S = 20
LIFETIME_MS = 60_000
RULES = {
    "/public": cached(scope=public(), headers=["accept-language"]),
    "/me": cached(scope=per_user(by=header("authorization")), stale_while_revalidate=30),
    "/team": cached(scope=per_role(by=lambda scope: ROLES.get(dict(scope["headers"]).get(b"authorization", b"").decode()))),
    "/private": cached(scope=private()),
    "/outside": cached(ttl=TTL_S, tags=["rates"]),
}  # fmt: skip
DEPENDS = {
    "/plain": ("user",), "/vary": ("user", "language"), "/public": ("language",), "/me": ("user",), "/team": ("role",),
    "/private": ("user",), "/cookie": ("user",), "/outside": (),
}  # fmt: skip
"""The parts that each page shows beside its version and the parameter `a`."""
PERSONAL = frozenset({"/me", "/team", "/private"})
QUERIES = (b"", b"a=1", b"a=2", b"a=1&utm_source=x", b"utm_source=y&a=1")
RANGES = (b"bytes=0-4", b"bytes=3-", b"bytes=-7", b"bytes=0-0,5-8", b"bytes=900-", b"bytes=9-2", b"lines=1-2")
DIRECTIVES = (b"no-cache", b"no-store", b"max-age=0", b"only-if-cached", b"max-stale", b"min-fresh=30")

RANGE = st.tuples(st.just(b"range"), st.sampled_from(RANGES))
TAG = st.integers(0, 3)
"""Choice of a tag that a client once received: the latest, the one before ..."""
EXTRAS = st.one_of(
    st.just(()),
    st.tuples(RANGE),
    st.tuples(RANGE, st.tuples(st.just(b"if-range"), TAG)),
    st.tuples(st.tuples(st.just(b"if-none-match"), TAG | st.just(b"*"))),
    st.tuples(st.tuples(st.just(b"cache-control"), st.sampled_from(DIRECTIVES))),
    st.tuples(RANGE, st.tuples(st.just(b"if-none-match"), TAG)),
)


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: bytes
    user: str | None
    language: str | None
    fields: tuple[tuple[bytes, bytes], ...]

    @property
    def scope(self) -> dict[str, Any]:
        headers = [(b"host", b"shop.test"), *self.fields]
        headers += [] if self.user is None else [(b"authorization", self.user.encode())]
        headers += [] if self.language is None else [(b"accept-language", self.language.encode())]
        return {
            "type": "http", "method": self.method, "scheme": "http", "path": self.path, "raw_path": self.path.encode(),
            "query_string": self.query, "root_path": "", "headers": headers,
        }  # fmt: skip

    def has(self, name: bytes) -> bytes | None:
        return next((value for field, value in self.fields if field == name), None)


def shown(scope: dict[str, Any], version: int) -> bytes:
    """Return a page's answer to a request, at one version."""
    fields = dict(scope["headers"])
    user = fields.get(b"authorization", b"").decode()
    parts = {"user": user, "role": ROLES.get(user, ""), "language": fields.get(b"accept-language", b"").decode()}
    a = re.search(rb"(?:^|&)a=(\d)", scope["query_string"])
    said = [scope["path"], *(parts[name] for name in DEPENDS[scope["path"]]), a[1].decode() if a else "", f"v{version}"]
    return "|".join(said).encode()


class Registry(HandRegistry):
    """Refuses what changed since it was read, as a grid does."""

    def __init__(self, versions: dict[str, int]) -> None:
        super().__init__()
        self._versions = versions
        self.guards: dict[str, Any] = {}

    async def register(self, reads: Sequence[CapturedRead], *, since: Version, expires_at_ms: int) -> Registered:
        registered = await super().register(reads, since=since, expires_at_ms=expires_at_ms)
        for registration_id, read in zip(registered.ids, reads, strict=True):
            value = read.query.filter.get("value")
            self.guards[registration_id] = value[0] if value else read.query.filter["_id"]["$in"]
            if value and self._versions[value[0]] != value[1]:
                raise RegistrationRefusedError("changed since it was read")
        return registered

    def kill_guards(self, *, page: str | None = None, tag: str | None = None) -> None:
        self.kill(
            "none", *(i for i, what in self.guards.items() if what == page or (tag and any(tag in n for n in what)))
        )


class ModelCache(RuleBasedStateMachine):
    @initialize(
        cdn=st.booleans(),
        estimated=st.booleans(),
        path=st.sampled_from(sorted(DEPENDS)),
        queries=st.lists(st.sampled_from(QUERIES), min_size=2, max_size=2),
        users=st.lists(st.sampled_from((None, None, None, "ann", "bob", "cid", "eve")), min_size=2, max_size=2),
    )
    def start(self, cdn: bool, estimated: bool, path: str, queries: list[bytes], users: list[str | None]) -> None:
        """One page, two queries and two users a time: what is much alike is mixed up most easily."""
        self.path, self.queries, self.users = path, queries, users
        self.runner = asyncio.Runner()
        self.version = dict.fromkeys(DEPENDS, 1)
        self.registry = Registry(self.version)
        self.engine = HandEngine(registry=self.registry, client_ttl="estimated" if estimated else "none")
        self.engine.estimator.ttl_ms = LIFETIME_MS // 3
        self.outside = [(self.engine.clock(), 1)]
        self.purged_ms = 0
        self.etags: dict[bytes, bytes] = {}
        self.cookies = 0
        self.seen_cookies: set[bytes] = set()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            path = scope["path"]
            headers = []
            if path == "/outside":
                version = self.outside[-1][1]
            else:
                version = self.version[path]
                reads((path, version))
            if path == "/vary":
                headers.append((b"vary", b"Accept-Language"))
            if path == "/cookie":
                self.cookies += 1
                headers.append((b"set-cookie", b"n=%d" % self.cookies))
            body = shown(scope, version)
            headers.append((b"content-length", b"%d" % len(body)))
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

        self.cache = QuaestorMiddleware(app, quaestor=self.engine, cdn=[TaggingCdn()] if cdn else [], routes=RULES)

    @rule()
    def write(self) -> None:
        self.version[self.path] += 1
        self.registry.kill_guards(page=self.path)

    @rule()
    def change_outside(self) -> None:
        """Change the value of which no write reports a change."""
        self.outside.append((self.engine.clock(), self.outside[-1][1] + 1))

    @rule()
    def purge(self) -> None:
        self.registry.kill_guards(tag="tag rates")
        self.purged_ms = self.engine.clock()
        self.outside = [(self.purged_ms, self.outside[-1][1])]

    @rule(seconds=st.sampled_from((0.001, 5, 19, 21, 45, 61, 95)))
    def wait(self, seconds: float) -> None:
        self.engine.clock.now_ms += int(seconds * 1000)

    @rule(
        method=st.sampled_from(("GET", "GET", "HEAD")),
        who=st.integers(0, 1),
        query=st.integers(0, 1),
        language=st.sampled_from((None, "en", "de")),
        first=st.sampled_from((None, "en", "de")),
        extra=EXTRAS,
        between=st.sampled_from(
            ("nothing", "nothing", "nothing", "write", "purge", "a while", "a lifetime", "an outage")
        ),
    )
    def converse(
        self,
        method: str,
        who: int,
        query: int,
        language: str | None,
        first: str | None,
        extra: tuple[Any, ...],
        between: str,
    ) -> None:
        """Fetch a page, change the world, and fetch the page again in one of the many ways,
        as the same user or another.
        """
        self.ask("GET", 0, 0, first, ())
        match between:
            case "write":
                self.write()
            case "purge":
                self.change_outside()
                self.purge()
            case "a while":
                self.change_outside()
                self.wait(21)
            case "a lifetime":
                self.wait(61)
            case "an outage":
                self.registry.up = False
        self.ask(method, who, query, language, extra)
        self.registry.up = True

    @rule(
        method=st.sampled_from(("GET", "GET", "HEAD")),
        who=st.integers(0, 1),
        query=st.integers(0, 1),
        language=st.sampled_from((None, "en", "de")),
        extra=EXTRAS,
    )
    def ask(self, method: str, who: int, query: int, language: str | None, extra: tuple[Any, ...]) -> None:
        known = list(self.etags)
        fields = []
        for name, value in extra:
            if isinstance(value, int):
                value = known[-1 - min(value, len(known) - 1)] if known else b'"none"'
            fields.append((name, value))
        request = Asked(method, self.path, self.queries[query], self.users[who], language, tuple(fields))
        self.judge(request, *self.runner.run(self.answer(request)))

    async def answer(self, request: Asked) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.cache(request.scope, receive, send)
        while under_way := list(self.cache._parts.refreshes._under_way._tasks):
            await asyncio.wait(under_way)
        return sent[0]["status"], sent[0]["headers"], b"".join(message.get("body", b"") for message in sent)

    def allowed(self, request: Asked) -> list[bytes]:
        """Return the answers that the page may give at this moment."""
        if request.path != "/outside":
            return [shown(request.scope, self.version[request.path])]
        since_ms = max(self.purged_ms, self.engine.clock() - TTL_S * 1000)
        ended = [at_ms for at_ms, _ in self.outside[1:]] + [1 << 62]
        return [
            shown(request.scope, v) for (_, v), end_ms in zip(self.outside, ended, strict=True) if end_ms >= since_ms
        ]

    def judge(self, request: Asked, status: int, raw: list[tuple[bytes, bytes]], body: bytes) -> None:
        headers = dict(raw)
        row = (request, status, headers, body)
        allowed = self.allowed(request)
        etag = headers.get(b"etag")
        if status == 504:
            assert request.has(b"cache-control") == b"only-if-cached", row
        elif status == 304:
            condition = request.has(b"if-none-match")
            assert condition is not None, row
            assert condition == b"*" or self.etags[condition] in allowed, row
        elif status == 416:
            assert request.has(b"range") in (b"bytes=900-",), row
        elif status == 206:
            self.judge_parts(request, headers, body, allowed)
        else:
            assert status == 200, row
            if request.method == "HEAD":
                assert body == b"", row
                assert int(headers[b"content-length"]) in map(len, allowed), row
            else:
                assert body in allowed, row
                assert int(headers[b"content-length"]) == len(body), row
                if etag is not None:
                    assert self.etags.setdefault(etag, body) == body, row
        self.judge_leave(request, headers, row)

    def judge_parts(self, request: Asked, headers: dict[bytes, bytes], body: bytes, allowed: list[bytes]) -> None:
        assert request.has(b"range") is not None
        condition = request.has(b"if-range")
        if condition is not None:
            assert self.etags.get(condition) in allowed, "If-Range: of another representation"
        kind = headers.get(b"content-type", b"")
        if kind.startswith(b"multipart/byteranges"):
            boundary = kind.partition(b"boundary=")[2]
            parts = [piece.partition(b"\r\n\r\n") for piece in body.split(b"--" + boundary)[1:-1]]
            ranges = [(re.search(rb"content-range: (\S+ \S+)", head, re.I), rest[:-2]) for head, _, rest in parts]
            spans = [(match[1] if match else b"", rest) for match, rest in ranges]
        else:
            spans = [(headers[b"content-range"], body)]
        assert spans
        for span, part in spans:
            match = re.fullmatch(rb"bytes (\d+)-(\d+)/(\d+)", span)
            assert match is not None, span
            first, last, size = map(int, match.groups())
            assert any(len(whole) == size and whole[first : last + 1] == part for whole in allowed), (
                request,
                span,
                part,
            )

    def judge_leave(self, request: Asked, headers: dict[bytes, bytes], row: Any) -> None:
        """Check which caches may keep the answer."""
        control = headers.get(b"cache-control", b"")
        shared = b"public" in control or b"s-maxage" in control or b"cdn-cache-control" in headers
        personal = request.path in PERSONAL or (request.user is not None and "user" in DEPENDS[request.path])
        assert not (personal and shared), row
        if request.path != "/plain" and request.path in PERSONAL and b"max-age" in control:
            assert b"max-age=0" in control, row
        cookie = headers.get(b"set-cookie")
        if cookie is not None:
            assert cookie not in self.seen_cookies, "a cookie was given to two"
            self.seen_cookies.add(cookie)
        if request.path in ("/vary", "/public") and b"public" in control:
            assert b"accept-language" in headers[b"vary"].lower(), row

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.close()


class LongModelCache(ModelCache):
    """The same for longer."""


ModelCache.TestCase.settings = settings(max_examples=250, stateful_step_count=12, deadline=None)
TestModelCache = ModelCache.TestCase
LongModelCache.TestCase.settings = settings(max_examples=3_000, stateful_step_count=15, deadline=None)
TestModelCacheForLonger = pytest.mark.slow(LongModelCache.TestCase)
