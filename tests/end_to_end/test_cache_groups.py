"""Cache groups (RFC 9875): a change of one member outdates the whole group, from any writer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from quaestor.clock import system_clock
from quaestor.event_layer import codec, streams
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.effects.broadcast import Broadcast
from quaestor.invalidation.effects.local_eviction import LocalEviction
from quaestor.model import Invalidated
from quaestor.ports import Guarded
from quaestor.read_path.unsafe_invalidation import group_label
from tests.end_to_end.site import Site, status_of
from tests.hand_driven import HandEngine, reads
from tests.support import eventually

pytestmark = pytest.mark.anyio


class Grouped(Site):
    """Every page names the groups in its query; a POST invalidates those in its query."""

    def __init__(self, *, explicit: bool = False) -> None:
        async def handler(request: Request) -> Response:
            if not explicit:
                reads()
            field = "cache-groups" if request.method == "GET" else "cache-group-invalidation"
            headers = {"cache-control": "max-age=600", field: request.query_params.get("groups", "")}
            if request.query_params.get("both"):
                headers["cache-group-invalidation"] = headers[field]
            return PlainTextResponse("x", int(request.query_params.get("status", 200)), headers=headers)

        super().__init__(handler, explicit=explicit)

    async def hit(self, path: str) -> bool:
        return "hit" in status_of(await self.get(path))


@pytest.mark.parametrize("explicit", [False, True])
async def test_an_unsafe_answer_that_names_a_group_outdates_all_of_it(explicit: bool) -> None:
    site = Grouped(explicit=explicit)
    pages = {'/1?groups="a"': True, '/2?groups="b", "a"': True, '/3?groups="b"': False, "/4?groups=a": False}
    for page in pages:
        await site.get(page)
        assert await site.hit(page)
    await site.client.post('/other?groups="c", "a"')
    site.engine.clock.now_ms += 1
    for page, outdated in pages.items():
        assert await site.hit(page) is not outdated, page
        assert await site.hit(page)


async def test_the_field_means_nothing_on_safe_methods_errors_and_when_malformed() -> None:
    site = Grouped()
    await site.get('/1?groups="a"')
    await site.get('/2?groups="a"&both=1')
    await site.client.post('/other?groups="a"&status=500')
    await site.client.post("/other?groups=a")
    await site.client.request("OPTIONS", '/other?groups="a"')
    site.engine.clock.now_ms += 1
    assert await site.hit('/1?groups="a"')


async def test_groups_of_another_origin_are_other_groups() -> None:
    site = Grouped()
    await site.get('/1?groups="a"')
    await site.client.post('http://another.test/other?groups="a"')
    site.engine.clock.now_ms += 1
    assert await site.hit('/1?groups="a"')


async def test_thirty_two_groups_of_thirty_two_characters_count() -> None:
    names = [f"{n:032}" for n in range(32)]
    site = Grouped()
    page = "/1?groups=" + ",".join(f'"{name}"' for name in names)
    for name in names:
        await site.get(page)
        await site.client.post(f'/other?groups="{name}"')
        site.engine.clock.now_ms += 1
        assert not await site.hit(page)


async def test_every_process_hears_of_it_and_kills_what_it_registered() -> None:
    layer, engine = MemoryEventLayer(clock=system_clock), HandEngine()
    forgotten: list[str] = []

    def forget(names: Sequence[str]) -> list[Guarded]:
        forgotten.extend(names)
        return []

    by_name = Broadcast(layer, deployment="d", clock=system_clock)
    engine.read_path.explicit.announce = by_name.announce
    site = Grouped()
    site.engine.read_path.explicit.announce = by_name.announce
    label = group_label("http://shop.test", "a")
    await site.get('/1?groups="a"')
    registrations = list(site.engine.registry.leases)
    await site.client.post('/other?groups="a"')

    def heard() -> list[Invalidated]:
        entries = layer.read({streams.notifications("d"): "0"}, count=10, block_ms=0)
        notifications = [codec.decode_notification(entry.payload) for entry in entries]
        return [message for message in notifications if isinstance(message, Invalidated)]

    [notification] = heard()
    assert notification.registration_ids == (label, *registrations)
    # Another process, which has an entry of that group in memory.
    other = Grouped()
    there = Broadcast(layer, deployment="d", clock=system_clock)
    other.engine.read_path.explicit.announce = there.announce
    await other.get('/1?groups="a"')
    LocalEviction(other.engine.read_path, forget).evict(notification.registration_ids)
    assert forgotten == list(notification.registration_ids)
    other.engine.clock.now_ms += 1
    assert not await other.hit('/1?groups="a"')
    await eventually(lambda: len(heard()) == 2)
    assert heard()[1].registration_ids == tuple(list(other.engine.registry.leases)[:1])
