"""Lists put together from records: every order in which reads, writes and their notifications can come, driven by hand."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import bson
import pytest

from quaestor.capture import current
from quaestor.capture.commands import Understood
from quaestor.capture.recorder import ReadInProgress
from quaestor.errors import RegistrationRefusedError
from quaestor.model import Operation, Query
from quaestor.query import compile_query, sort_key_function
from quaestor.rest.assembled import TRUST_MS, AssembledLists, Assembly, Wanted
from tests.hand_driven import HandEngine

pytestmark = pytest.mark.anyio

SORT = (("rank", 1), ("_id", 1))
Hook = Callable[[], Awaitable[None]]


class World:
    """A collection, a list of it (group "a" by rank), and a writer that chooses which notifications arrive.

    meanwhile: run once, inside the next read, after the database has answered.
    """

    def __init__(self, **settings: Any) -> None:
        self.engine = HandEngine(**{"ttl_max_ms": 3_600_000} | settings)
        self.lists = AssembledLists(self.engine, "shop")
        self.records: dict[int, dict[str, Any]] = {i: {"_id": i, "group": "a", "rank": i, "text": ""} for i in range(4)}
        self.asked: list[str] = []
        self.meanwhile: Hook | None = None
        self.wanted = Wanted(
            name="list:x",
            collection="items",
            query=Query(namespace="shop.items", operation=Operation.FIND, filter={"group": "a"}, sort=SORT),
            sort=SORT,
            predicate=compile_query({"group": "a"}),
            place=sort_key_function(SORT),
            fetch=self._fetch,
            fetch_some=self._fetch_some,
            asked="",
        )

    async def answer(self) -> Any:
        return json.loads((await self.lists.answer(self.wanted)).body)

    def truth(self) -> list[Any]:
        records = [record for record in self.records.values() if record["group"] == "a"]
        return sorted(records, key=lambda record: (record["rank"], record["_id"]))

    def write(self, key: int, *, heard: str = "list record", **changes: Any) -> None:
        """heard: whose notifications arrive at once."""
        self.records[key] = self.records[key] | changes
        if "list" in heard:
            self.hear({"group": "a"})
        if "record" in heard:
            self.hear({"_id": key})

    def hear(self, filter_: Any) -> None:
        """The notifications that kill what this query registered, and what effects do then."""
        registry = self.engine.registry
        ids = [f"test:{n}" for n, (reads, _) in enumerate(registry.registered, 1) if reads[0].query.filter == filter_]
        registry.kill(*ids or ("none",))
        self.engine.store.drop_guarded(ids)

    async def _fetch(self) -> list[bytes]:
        self.asked.append("list")
        return await self._read([dict(record) for record in self.truth()], {"group": "a"})

    async def _fetch_some(self, ids: list[Any]) -> list[bytes]:
        self.asked.append(f"records {sorted(ids)}")
        return await self._read([dict(self.records[key]) for key in ids if key in self.records], {"_id": {"$in": ids}})

    async def _read(self, records: list[dict[str, Any]], filter_: Any) -> list[bytes]:
        recorder = current()
        assert recorder is not None, "reads are recorded"
        query = Query(namespace="shop.items", operation=Operation.FIND, filter=filter_, sort=SORT)
        request = object()
        understood = Understood(query=query, keeps_records=True, description="find")
        recorder.begin(request, ReadInProgress(understood=understood, operation_id=None, primary=True, ids=[]))
        ids = [record["_id"] for record in records]
        recorder.replied(request, read_at=7, ids=ids, cursor=None, cursor_id=0, duration_ms=1.0)
        hook, self.meanwhile = self.meanwhile, None
        if hook is not None:
            await hook()
        return [bson.encode(record) for record in records]


async def test_a_list_is_read_once_and_registered_by_its_ids_and_by_its_records() -> None:
    world = World()
    for _ in range(3):
        assert await world.answer() == world.truth()
    assert world.asked == ["list"]
    queries = [reads[0].query for reads, _ in world.engine.registry.registered]
    assert [query.filter for query in queries] == [{"group": "a"}, *({"_id": i} for i in range(4))]
    assert queries[0].projection == {"_id": 1, "rank": 1}
    assert {since for _, since in world.engine.registry.registered} == {1}, "the watermark before the read"


async def test_a_change_of_one_member_reads_that_record() -> None:
    world = World()
    await world.answer()
    world.write(2, text="new", heard="record")
    assert await world.answer() == world.truth()
    assert world.asked == ["list", "records [2]"]
    assert await world.answer() == world.truth()
    assert len(world.asked) == 2


@pytest.mark.parametrize("change", [{"group": "b"}, {"rank": 99}], ids=["leaves", "moves"])
async def test_a_record_that_no_longer_belongs_is_noticed_before_the_list_hears_of_it(change: Any) -> None:
    world = World()
    await world.answer()
    world.write(2, heard="record", **change)
    assert await world.answer() == world.truth()
    assert world.asked[-1] == "list"


async def test_a_record_that_is_gone_is_noticed_before_the_list_hears_of_it() -> None:
    world = World()
    await world.answer()
    del world.records[1]
    world.hear({"_id": 1})
    assert await world.answer() == world.truth()


async def test_another_list_that_read_the_record_again_does_not_put_it_where_it_does_not_belong() -> None:
    world = World()
    await world.answer()
    other = World()
    other.engine, other.lists, other.records = world.engine, world.lists, world.records
    object.__setattr__(other.wanted, "name", "list:y")
    world.write(2, heard="record", group="b")
    everything = compile_query({})
    object.__setattr__(other.wanted, "predicate", everything)
    other.truth = lambda: [world.records[i] for i in range(4)]  # type: ignore[method-assign]
    assert len(await other.answer()) == 4
    assert await world.answer() == world.truth()


@pytest.mark.parametrize("heard", ["list", "record", "list record"])
async def test_a_change_while_records_are_read_again_is_not_overlooked(heard: str) -> None:
    """A write to another member, after the database has answered for the first one."""
    world = World()
    await world.answer()
    world.write(2, text="new", heard="record")

    async def meanwhile() -> None:
        world.write(3, text="too", rank=-5, heard=heard)

    world.meanwhile = meanwhile
    assert await world.answer() == world.truth()
    assert await world.answer() == world.truth()


@pytest.mark.parametrize("heard", ["list", "record", "list record"])
async def test_a_list_that_changes_while_it_is_read_is_not_kept(heard: str) -> None:
    """The registration comes after the write, so the grid refuses it, or kills it a moment later."""
    world = World()

    async def refuse() -> None:
        raise RegistrationRefusedError("changed while it was being registered")

    async def meanwhile() -> None:
        world.write(1, text="new", heard=heard)
        world.engine.registry.before_register = refuse

    world.meanwhile = meanwhile
    await world.answer()
    world.engine.registry.before_register = None
    assert await world.answer() == world.truth()
    assert world.asked == ["list", "list"]


async def test_a_list_that_dies_between_activation_and_storage_is_not_kept() -> None:
    """Later the registry may have forgotten that it died."""
    world = World()
    await world.answer()
    world.write(1, text="new")
    registry = world.engine.registry
    register = registry.register

    async def deadly(reads: Any, **options: Any) -> Any:
        registered = await register(reads, **options)
        registry.kill(*registered.ids)
        return registered

    registry.register = deadly  # type: ignore[method-assign]
    await world.answer()
    registry.register = register  # type: ignore[method-assign]
    registry.dead.clear()
    world.write(1, text="newer", heard="")
    assert await world.answer() == world.truth()


async def test_deaths_that_the_registry_has_forgotten_are_not_overlooked() -> None:
    """The dead are forgotten after a while; what they guarded has long left the store by then."""
    world = World()
    await world.answer()
    world.write(1, text="new", heard="record")
    world.engine.registry.dead.clear()
    world.engine.clock.now_ms += TRUST_MS
    assert await world.answer() == world.truth()
    assert world.asked == ["list", "records [1]"]


async def test_a_list_nobody_asked_for_for_long_is_put_together_without_reading() -> None:
    world = World()
    await world.answer()
    world.engine.clock.now_ms += TRUST_MS
    assert world.lists.ready(world.wanted) is not None
    assert world.asked == ["list"]


async def test_nothing_lives_longer_than_its_registrations_are_kept() -> None:
    world = World()
    await world.answer()
    world.engine.clock.now_ms += world.engine.settings.lifetimes.ttl_max_ms
    world.records[0]["text"] = "unheard"
    assert await world.answer() == world.truth()


async def test_a_list_lives_no_longer_than_its_oldest_record() -> None:
    """Records that have not changed keep their registration when the list is read again, and its end."""
    world = World(ttl_max_ms=10_000)
    await world.answer()
    world.engine.clock.now_ms += 6_000
    world.write(3, rank=-1)
    assert await world.answer() == world.truth()
    assert await world.answer() == world.truth()
    world.engine.clock.now_ms += 6_000
    world.write(0, text="unheard", heard="")
    assert await world.answer() == world.truth()


async def test_nothing_is_answered_from_memory_while_the_grid_cannot_vouch() -> None:
    world = World()
    await world.answer()
    world.engine.registry.up = False
    world.write(0, text="unheard", heard="")
    assert await world.answer() == world.truth()
    assert await world.answer() == world.truth()
    assert world.asked == ["list"] * 3


async def test_a_request_that_waited_for_another_read_is_not_given_records_changed_since() -> None:
    world = World()
    reading, go_on = anyio.Event(), anyio.Event()

    async def hold() -> None:
        reading.set()
        await go_on.wait()

    world.meanwhile = hold
    answers: dict[str, Any] = {}

    async def ask(who: str) -> None:
        answers[who] = await world.answer()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, "first")
        await reading.wait()
        world.write(0, text="new", heard="")  # its notification comes when the registrations are there
        tasks.start_soon(ask, "second")
        await anyio.lowlevel.checkpoint()
        register = world.engine.registry.register

        async def registers(reads: Any, **options: Any) -> Any:
            registered = await register(reads, **options)
            if reads[0].query.filter == {"_id": 0}:
                world.engine.registry.kill(*registered.ids)
            return registered

        world.engine.registry.register = registers  # type: ignore[method-assign]
        go_on.set()
    assert answers["second"] == world.truth()
    assert answers["first"] != world.truth(), "it asked before the write"


async def test_a_reader_that_leaves_does_not_take_the_others_answer_with_it() -> None:
    world = World()
    reading, go_on = anyio.Event(), anyio.Event()

    async def hold() -> None:
        reading.set()
        await go_on.wait()

    world.meanwhile = hold
    answers: list[Any] = []

    async def second() -> None:
        answers.append(await world.answer())

    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as leaving:
            async with anyio.create_task_group() as first:
                first.start_soon(world.answer)
                await reading.wait()
                leaving.cancel()
        tasks.start_soon(second)
        await anyio.lowlevel.checkpoint()
        go_on.set()
    assert answers == [world.truth()]
    assert world.asked == ["list"]


async def test_an_error_of_the_database_is_everybodys_own_and_is_not_remembered() -> None:
    world = World()

    async def fail() -> None:
        raise OSError("away")

    world.meanwhile = fail
    with pytest.raises(OSError, match="away"):
        await world.answer()
    assert await world.answer() == world.truth()


async def test_records_that_cannot_be_registered_are_answered_and_read_again() -> None:
    world = World()
    register = world.engine.registry.register

    async def picky(reads: Any, **options: Any) -> Any:
        if reads[0].query.filter == {"_id": 2}:
            raise RegistrationRefusedError("busy")
        return await register(reads, **options)

    world.engine.registry.register = picky  # type: ignore[method-assign]
    for _ in range(3):
        world.records[2]["text"] += "x"
        assert await world.answer() == world.truth()
    assert world.asked == ["list", "records [2]", "records [2]"]


async def test_a_body_beyond_the_limit_is_answered_and_not_kept() -> None:
    world = World()
    object.__setattr__(world.engine.settings.store, "max_body_bytes", 50)
    for _ in range(2):
        assert await world.answer() == world.truth()
    assert world.asked == ["list", "list"]


async def test_the_tag_is_that_of_the_content() -> None:
    world = World()
    first: Assembly = await world.lists.answer(world.wanted)
    again = await world.lists.answer(world.wanted)
    world.write(2, text="new", heard="record")
    changed = await world.lists.answer(world.wanted)
    assert first.etag == again.etag != changed.etag
    assert first.ids == changed.ids
