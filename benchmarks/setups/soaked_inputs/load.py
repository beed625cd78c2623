"""Readers, writers and a bare twin, all in one event loop: every answer is checked, a sample is compared with the twin's."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from bisect import bisect
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from benchmarks.setups.soaked_inputs.app import performed
from benchmarks.setups.soaked_inputs.asks import Ask, World, request
from benchmarks.setups.soaked_inputs.books import ADDRESSES, Answer, Book
from benchmarks.setups.soaked_inputs.wire import Connection
from benchmarks.setups.soaked_inputs.wire import field as header_field
from quaestor.testing.servers import HOST

WAYS = ("update", "find-and-modify", "bulk", "transaction")
INDEX_S = 5.0
"""How often the database is made to choose otherwise: an index comes and goes."""
_KEPT = 20


@dataclass(slots=True)
class Tally:
    """Outcomes of the load.

    by_route: answers by route and by how they came: hit, stored, or why not.
    wrong: by fault; wrong_by_route: by route and fault.
    first_wrong: the first few, for people.
    twin: answers of the bare twin, and outcomes of the comparison.
    """

    answered: int = 0
    by_route: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    wrong_by_route: Counter[tuple[str, str]] = field(default_factory=Counter)
    first_wrong: list[str] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    after_own_writes: int = 0
    twin: Counter[str] = field(default_factory=Counter)


class Load:
    """Of one run. ports: of the workers; bare_port: of the twin.

    own_writes_s: a write that took longer to be answered may not have taken effect: nothing is expected of it.
    every: so many requests are followed by one that is compared with the twin.
    """

    def __init__(
        self,
        world: World,
        *,
        mongo_url: str,
        database: str,
        ports: list[int],
        bare_port: int,
        readers: int,
        writes_per_s: float,
        own_writes_s: float,
        every: int,
        seed: int,
    ) -> None:
        self.world, self.tally = world, Tally()
        self._mongo_url, self._database = mongo_url, database
        self._ports, self._bare_port, self._readers = ports, bare_port, readers
        self._writes_per_s, self._own_writes_s, self._every = writes_per_s, own_writes_s, every
        self._seed = random.Random(seed)
        self._asks = world.asks
        self._upto = list(itertools.accumulate(ask.weight for ask in self._asks))
        self._books = world.books
        self._books_upto = list(itertools.accumulate(book.weight for book in self._books))
        self._showing = {
            book.name: [ask for ask in self._asks if ask.book is book and ask.cached] for book in self._books
        }
        self._left = 0
        self._connections: list[Connection] = []

    async def run(self, requests: int) -> None:
        """Ask so often, while others write."""
        self._left = requests
        client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(self._mongo_url)
        try:
            others = [
                asyncio.create_task(self._write(worker, client, random.Random(self._seed.random())))
                for worker in range(len(self._ports))
            ]
            others.append(asyncio.create_task(self._index(client)))
            async with asyncio.TaskGroup() as readers:
                for worker, number in itertools.product(range(len(self._ports)), range(self._readers)):
                    address = ADDRESSES[number % len(ADDRESSES)]
                    readers.create_task(self._read(worker, address, random.Random(self._seed.random())))
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        finally:
            for connection in self._connections:
                connection.close()
            await client.close()

    def _connection(self, port: int, address: str = HOST) -> Connection:
        self._connections.append(Connection(port, address))
        return self._connections[-1]

    async def _read(self, worker: int, address: str, rng: random.Random) -> None:
        connection, bare = self._connection(self._ports[worker], address), self._connection(self._bare_port, address)
        asks, upto, total = self._asks, self._upto, self._upto[-1]
        while self._left > 0:
            self._left -= 1
            ask = asks[bisect(upto, rng.random() * total)]
            ask = ask.by_address.get(address, ask)
            if self._left % self._every:
                await self._put(ask, connection, worker, address)
            else:
                await self._compare(ask, connection, bare, worker, address)

    async def _put(self, ask: Ask, connection: Connection, worker: int, address: str) -> tuple[int, Any] | None:
        """Ask for one page, and have the answer checked: status and body, or None if there is none."""
        tally, asked_s = self.tally, time.time()
        known = ask.book.known(worker, asked_s)
        try:
            status, head, body = await connection.ask(ask.raw)
        except OSError as error:
            tally.failed[f"{ask.route}: {type(error).__name__}"] += 1
            return None
        answered_s = time.time()
        how = how_it_came(head)
        tally.answered += 1
        tally.by_route[ask.route, how] += 1
        tally.after_own_writes += bool(known)
        shown = parsed(body)
        if status >= 500:
            tally.failed[f"{ask.route}: {status}"] += 1
            return status, shown
        answer = Answer(worker, address, status, shown, how == "hit", asked_s, answered_s, known)
        wrong = self._wrong(ask, answer)
        if wrong is not None:
            tally.wrong[wrong] += 1
            tally.wrong_by_route[ask.route, wrong] += 1
            if len(tally.first_wrong) < _KEPT:
                tally.first_wrong.append(
                    f"{wrong}: {ask.raw!r} of worker {worker}, {how}: {status} {shown!r}; {answer}"
                )
        return status, shown

    def _wrong(self, ask: Ask, answer: Answer) -> str | None:
        if answer.status != ask.status:
            return "foreign" if answer.status < 400 else "status"
        return ask.judge(answer)

    async def _compare(self, ask: Ask, connection: Connection, bare: Connection, worker: int, address: str) -> None:
        """The twin answers before and after the cache. If both answers are equal, and no write came within the allowed age, the
        cache has to answer the same. All answers of the twin are checked too: the twin is never wrong, or the check is."""
        began_s = time.time()
        before = await self._ask_twin(ask, bare, address)
        given = await self._put(ask, connection, worker, address)
        after = await self._ask_twin(ask, bare, address)
        if ask.free or before is None or before != after:
            self.tally.twin["not comparable"] += 1
        elif not ask.book.quiet_since(began_s - ask.book.bound_s):
            self.tally.twin["written meanwhile"] += given == before
            self.tally.twin["written meanwhile, another state"] += given != before
        else:
            self.tally.twin["the same" if given == before else "another"] += 1

    async def _ask_twin(self, ask: Ask, bare: Connection, address: str) -> tuple[int, Any] | None:
        asked_s = time.time()
        try:
            status, _, body = await bare.ask(ask.raw)
        except OSError:
            return None
        answer = Answer(-1, address, status, parsed(body), False, asked_s, time.time(), {})
        wrong = self._wrong(ask, answer)
        self.tally.twin["asked"] += 1
        if wrong is not None:
            self.tally.twin[f"found {wrong}"] += 1
        return status, answer.body

    async def _write(self, worker: int, client: AsyncMongoClient[dict[str, Any]], rng: random.Random) -> None:
        """Half of the writes go to the database directly, half through the worker, which is asked at once what it has written."""
        posting, same, other = (self._connection(self._ports[worker]) for _ in range(3))
        per_s = self._writes_per_s / len(self._ports)
        while True:
            await asyncio.sleep(rng.expovariate(per_s))
            book = self._books[bisect(self._books_upto, rng.random() * self._books_upto[-1])]
            key = rng.choice(book.hot() if book.hot is not None else range(len(book.ids)))
            if key in book.writing:
                continue
            if rng.random() < 0.5:
                await self._write_directly(client, book, key)
                continue
            number = await self._post(posting, book, key, rng.choice(WAYS), worker)
            if number is not None and self._showing[book.name]:
                again = [rng.choice(self._showing[book.name]) for _ in range(2)]
                self._left -= 2
                await asyncio.gather(
                    *(self._put(ask, client, worker, HOST) for ask, client in zip(again, (same, other), strict=True))
                )

    async def _write_directly(self, client: AsyncMongoClient[dict[str, Any]], book: Book, key: int) -> None:
        try:
            with book.write(key) as number:
                fields = book.fields(key, number)
                await performed(client[self._database], book.collection, book.ids[key], fields, "update")
            self.tally.writes["by another program"] += 1
        except PyMongoError as error:
            self.tally.failed[f"write: {type(error).__name__}"] += 1

    async def _post(self, connection: Connection, book: Book, key: int, how: str, worker: int) -> int | None:
        """Post a write; return its number if later requests have to show it."""
        try:
            with book.write(key) as number:
                write = {
                    "collection": book.collection, "_id": book.ids[key], "fields": book.fields(key, number), "how": how,
                }  # fmt: skip
                began_s = time.time()
                status, _, _ = await connection.ask(request("/write", method="POST", body=json.dumps(write).encode()))
                if status != 200:
                    raise ConnectionRefusedError(f"status {status}")
        except OSError as error:
            self.tally.failed[f"write: {error}"] += 1
            return None
        if time.time() - began_s >= self._own_writes_s:
            self.tally.writes["through a worker, answered late"] += 1
            return None
        self.tally.writes["through a worker"] += 1
        book.own_write(worker, key, number)
        return number

    async def _index(self, client: AsyncMongoClient[dict[str, Any]]) -> None:
        """Has the database choose otherwise where it may: nothing is written."""
        pools, keys = client[self._database].pools, [("pool", 1), ("x", -1)]
        while True:
            await asyncio.sleep(INDEX_S)
            await pools.create_index(keys)
            await asyncio.sleep(INDEX_S)
            await pools.drop_index(keys)


def how_it_came(head: bytes) -> str:
    """hit, stored, or why the answer was not."""
    status = header_field(head, b"cache-status")
    if b"; hit" in status:
        return "hit"
    if b"; stored" in status:
        return "stored"
    _, mark, detail = status.partition(b"detail=")
    return detail.decode() if mark else "not stored"


def parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
