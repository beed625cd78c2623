"""Random requests, writes, clocks and failures against a model: no stale answer,
and no copy outside that outlives its write.

Writes also strike in the middle of a request, at every point where the read path waits. The model's registry acts as a
real grid: it refuses a result that changed after its read, and kills results that a write changes. Catches: a check
that is missing after an await, an entry or a copy that the index does not know.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import httpx
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quaestor.errors import RegistrationRefusedError, StoreError
from quaestor.middleware import QuaestorMiddleware
from quaestor.model import CachedResponse, CapturedRead, Dependent, Version
from quaestor.ports import Registered
from quaestor.store.index_memory import MemoryIndex
from quaestor.store.memory import MemoryStore
from quaestor.store.two_level import TwoLevelStore
from tests.hand_driven import HandClock, HandEngine, HandRegistry, HandSketch, TaggingCdn, reads

PAGES = ("/a", "/b")
STALE = {"/a": b"public, stale-if-error=50", "/b": b"public, stale-while-revalidate=40, stale-if-error=50"}
"""The pages' permissions of use after their lifetime."""
SPELLINGS = ("{}?x=1&y=2", "{}?y=2&x=1", "{}?x=1&y=2&")
STAGES = ("read", "answered", "register", "registered", "index", "indexed", "sketch", "put", "stored", "lookup")


class World:
    """The database, the CDN, and what strikes where."""

    def __init__(self) -> None:
        self.version = dict.fromkeys(PAGES, 1)
        self.guards: dict[str, str] = {}
        self.registry = ModelRegistry(self)
        self.index = MemoryIndex()
        self.shared = MemoryStore(budget_bytes=10**6)
        self.sketch = HandSketch()
        self.clock = HandClock()
        self.copies: dict[str, tuple[str, int]] = {}
        self.strike: tuple[str, str] | None = None
        self.failing: str | None = None
        self.broken = False

    async def stage(self, name: str) -> None:
        """Something is about to happen, or has just happened."""
        await asyncio.sleep(0)
        if self.strike is not None and self.strike[0] == name:
            page, self.strike = self.strike[1], None
            await self.write(page)
        if self.failing == name:
            raise StoreError("the model says so")

    async def write(self, page: str, *, evict: bool = True) -> None:
        """A write and, as far as it concerns what is registered, its effects. evict: before anything else happens."""
        self.version[page] += 1
        dead = [i for i, guarded in self.guards.items() if guarded == page]
        self.registry.kill(*dead, "none")
        for dependent in await self.index.claim(dead, now_ms=self.clock()):
            for url in dependent.urls:
                self.copies.pop(url, None)
            if evict:
                await self.shared.evict([dependent])
            await self.index.settle([dependent])


class ModelRegistry(HandRegistry):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    async def register(self, reads: Sequence[CapturedRead], *, since: Version, expires_at_ms: int) -> Registered:
        await self._world.stage("register")
        registered = await super().register(reads, since=since, expires_at_ms=expires_at_ms)
        for registration_id, read in zip(registered.ids, reads, strict=True):
            page, version = read.query.filter["value"]
            self._world.guards[registration_id] = page
            if self._world.version[page] != version:
                raise RegistrationRefusedError("changed since it was read")
        await self._world.stage("registered")
        if not self.dead.isdisjoint(registered.ids):
            raise RegistrationRefusedError("changed while it was being registered")
        return registered


class StagedIndex:
    def __init__(self, world: World) -> None:
        self._world = world

    async def add(self, dependent: Dependent) -> None:
        await self._world.stage("index")
        await self._world.index.add(dependent)
        await self._world.stage("indexed")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.index, name)


class StagedStore:
    def __init__(self, world: World) -> None:
        self._world = world

    async def get(self, key: str) -> CachedResponse | None:
        entry = await self._world.shared.get(key)
        await self._world.stage("lookup")
        return entry

    async def put(self, response: CachedResponse, *, ttl_ms: int) -> None:
        await self._world.stage("put")
        await self._world.shared.put(response, ttl_ms=ttl_ms)
        await self._world.stage("stored")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.shared, name)


class StagedSketch:
    def __init__(self, world: World) -> None:
        self._world = world

    async def report_read(self, resource: str, *, expires_at_ms: int, now_ms: int) -> None:
        await self._world.stage("sketch")
        await self._world.sketch.report_read(resource, expires_at_ms=expires_at_ms, now_ms=now_ms)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.sketch, name)


class Process:
    """One app process with a page that shows the version it read."""

    def __init__(self, world: World, *, cdn: bool) -> None:
        store: Any = TwoLevelStore(MemoryStore(budget_bytes=10**6), StagedStore(world))
        index: Any = StagedIndex(world)
        self.engine = HandEngine(store=store, index=index, registry=world.registry, clock=world.clock)
        self.engine.read_path.admission.announcement._sketch = StagedSketch(world)

        async def page(scope: Any, receive: Any, send: Any) -> None:
            version = world.version[scope["path"]]
            reads((scope["path"], version))
            await world.stage("read")
            headers = [(b"cache-control", STALE[scope["path"]])]
            if world.broken:
                await send({"type": "http.response.start", "status": 503, "headers": []})
                await send({"type": "http.response.body", "body": b""})
            else:
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                await world.stage("answered")
                await send({"type": "http.response.body", "body": b"%d" % version})

        app = QuaestorMiddleware(page, quaestor=self.engine, cdn=[TaggingCdn()] if cdn else [])

        async def watched(scope: Any, receive: Any, send: Any) -> None:
            """Check that an answer that may be kept is up to date at the moment when it leaves."""
            granted_at: int | None = None

            async def check(message: Any) -> None:
                nonlocal granted_at
                if message["type"] == "http.response.start":
                    if b"cdn-cache-control" in dict(message["headers"]):
                        granted_at = world.version[scope["path"]]
                elif message["body"]:
                    assert granted_at is None or int(message["body"]) == granted_at, "leave to keep what is stale"
                await send(message)

            await app(scope, receive, check)

        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app=watched), base_url="http://x")


class ReadPathMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.runner = asyncio.Runner()
        self.world = World()
        self.processes = [Process(self.world, cdn=cdn) for cdn in (True, False)]

    @rule(page=st.sampled_from(PAGES), evict=st.booleans())
    def write(self, page: str, evict: bool) -> None:
        self.runner.run(self.world.write(page, evict=evict))

    @rule(
        process=st.integers(0, 1),
        spelling=st.sampled_from(SPELLINGS),
        pages=st.lists(st.sampled_from(PAGES), min_size=1, max_size=3),
        strike=st.none() | st.tuples(st.sampled_from(STAGES), st.sampled_from(PAGES)),
        failing=st.none() | st.sampled_from(("index", "indexed", "put", "stored", "lookup")),
        broken=st.sampled_from((False, False, True)),
    )
    def get(
        self,
        process: int,
        spelling: str,
        pages: list[str],
        strike: tuple[str, str] | None,
        failing: str | None,
        broken: bool,
    ) -> None:
        """Several clients at once, perhaps for the same page, through the CDN's eyes."""
        world = self.world
        world.strike, world.failing, world.broken = strike, failing, broken
        before = dict(world.version)

        async def one(page: str) -> None:
            url = "http://x" + spelling.format(page)
            answer = await self.processes[process].client.get(url)
            if answer.status_code == 503:
                assert broken
                return
            assert answer.status_code == 200
            version = int(answer.content)
            assert version >= before[page], f"{answer.headers['cache-status']}: {version} is older than {before[page]}"
            may_keep = re.fullmatch(r"max-age=(\d+)", answer.headers.get("cdn-cache-control", ""))
            if may_keep and world.version[page] == version:
                world.copies[url] = (page, version)
            if "no-store" in answer.headers["cache-control"]:
                assert may_keep is None

        async def all_of_them() -> None:
            await asyncio.gather(*(one(page) for page in pages))

        self.runner.run(all_of_them())
        world.strike, world.failing, world.broken = None, None, False

    @rule(elapsed_ms=st.sampled_from((1, 999, 30_000, 61_000)))
    def wait(self, elapsed_ms: int) -> None:
        self.world.clock.now_ms += elapsed_ms

    @rule(
        process=st.integers(0, 1),
        page=st.sampled_from(PAGES),
        written=st.booleans(),
        strike=st.none() | st.tuples(st.sampled_from(STAGES), st.sampled_from(PAGES)),
        broken=st.booleans(),
    )
    def outlive(self, process: int, page: str, written: bool, strike: tuple[str, str] | None, broken: bool) -> None:
        """A page is asked for again when its lifetime is just over, perhaps after a write."""
        self.grid(up=True)
        self.get(process, SPELLINGS[0], [page], None, None, False)
        self.wait(61_000)
        if written:
            self.write(page, evict=False)
        self.get(process, SPELLINGS[0], [page, page], strike, None, broken)

    @rule(up=st.booleans())
    def grid(self, up: bool) -> None:
        self.world.registry.up = up

    @precondition(lambda self: self.world.registry.up)
    @rule(process=st.integers(0, 1))
    def restart(self, process: int) -> None:
        self.processes[process] = Process(self.world, cdn=process == 0)

    @invariant()
    def no_copy_outside_has_been_outlived_by_a_write(self) -> None:
        for url, (page, version) in getattr(self, "world", World()).copies.items():
            assert version == self.world.version[page], f"{url} is stale in the CDN"

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.close()


ReadPathMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestReadPath = ReadPathMachine.TestCase
