"""The canary of a CDN finds, on a real Varnish, the purges that are acknowledged and do nothing."""

from __future__ import annotations

import asyncio
import sys
import time
import types

import pytest
from starlette.applications import Starlette

from quaestor import Quaestor
from quaestor.cdn_adapters import MemoryAdapter, VarnishAdapter
from quaestor.cdn_ports import Finding, Level
from quaestor.doctor.cdn_check import check_cdn
from quaestor.errors import ConfigurationError
from quaestor.invalidation.effects.purge_probe import (
    MARK,
    PATH,
    Purge,
    PurgeProbes,
    addresses,
    check,
    probe_tag,
)
from quaestor.middleware import QuaestorMiddleware
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import CdnAdapter
from quaestor.redis.clients import shared_client
from quaestor.store.outbox_memory import MemoryOutbox
from quaestor.store.outbox_redis import RedisOutbox
from quaestor.tasks import ended
from quaestor.testing.servers import HOST, Server
from tests.end_to_end.origin import Answer, Origin
from tests.end_to_end.site import Site
from tests.end_to_end.varnish_site import CACHED, TOKEN, adapter, behind, needs_varnish, tagged, varnish
from tests.hand_driven import TaggingCdn
from tests.support import PATIENCE_S, eventually

pytestmark = pytest.mark.anyio
__all__ = ["adapter", "behind", "varnish"]

WITHIN_S = 2.0


def canary(behind: Origin, *tags: str, **fields: str) -> None:
    """Let the origin answer as the middleware does: a new body each time."""
    mark = {MARK: str(int(time.time() * 1_000))}
    behind.answers[PATH] = Answer({**tagged(*tags).headers, **mark, **fields})


@pytest.fixture(autouse=True)
async def nothing_kept(varnish: Server, adapter: VarnishAdapter) -> None:
    """Purge the remains of other tests, which would be taken for the canary."""
    await adapter.purge(tags=[], urls=[varnish.url + PATH])


async def found(address: str, adapter: CdnAdapter, tag: str) -> Finding:
    async def purge(tags: object, urls: object) -> None:
        await adapter.purge(tags=list(tags), urls=list(urls))  # type: ignore[call-overload]

    return await check(address, tag, purge, within_s=WITHIN_S)


@needs_varnish
async def test_a_cdn_that_is_set_up_passes(
    varnish: Server, behind: Origin, adapter: VarnishAdapter, prefix: str
) -> None:
    canary(behind, prefix)
    finding = await found(varnish.url, adapter, prefix)
    assert finding.level is Level.OK, finding.sentence


@needs_varnish
async def test_a_tag_field_that_is_stripped_is_found(
    varnish: Server, behind: Origin, adapter: VarnishAdapter, prefix: str
) -> None:
    """A stripped tag field and a configuration without tags are found: both keep answers that a purge by tag should
    have removed.
    """
    canary(behind)
    finding = await found(varnish.url, adapter, prefix)
    assert finding.level is Level.BLOCK
    assert "by tag has no effect" in finding.sentence


@needs_varnish
async def test_purges_that_go_elsewhere_are_found(varnish: Server, behind: Origin, prefix: str) -> None:
    """A wrong zone acknowledges everything."""
    canary(behind, prefix)
    elsewhere = MemoryAdapter()
    finding = await found(varnish.url, elsewhere, prefix)
    await elsewhere.aclose()
    assert finding.level is Level.BLOCK
    assert "another zone" in finding.sentence


@needs_varnish
async def test_a_token_that_was_revoked_is_found(varnish: Server, behind: Origin, prefix: str) -> None:
    canary(behind, prefix)
    revoked = VarnishAdapter(varnish.url, token="no-longer-valid")
    finding = await found(varnish.url, revoked, prefix)
    await revoked.aclose()
    assert finding.level is Level.BLOCK
    assert "refused" in finding.sentence


@needs_varnish
async def test_a_cdn_that_keeps_nothing_is_worth_a_warning(
    varnish: Server, behind: Origin, adapter: VarnishAdapter, prefix: str
) -> None:
    canary(behind, prefix, **{"cdn-cache-control": "no-store"})
    finding = await found(varnish.url, adapter, prefix)
    assert finding.level is Level.WARN


@needs_varnish
async def test_an_address_that_is_not_the_applications_is_found(
    varnish: Server, behind: Origin, adapter: VarnishAdapter, prefix: str
) -> None:
    behind.answers[PATH] = Answer(CACHED, body="somebody else")
    assert "is not this application's" in (await found(varnish.url, adapter, prefix)).sentence
    assert "does not answer" in (await found("http://127.0.0.1:9", adapter, prefix)).sentence


@needs_varnish
async def test_a_cdn_whose_purges_have_no_effect_gets_short_lifetimes_until_they_have(
    varnish: Server, behind: Origin, adapter: VarnishAdapter, prefix: str
) -> None:
    telemetry = Telemetry()

    def purge_of(cdn: CdnAdapter) -> object:
        return lambda tags, urls: cdn.purge(tags=tags, urls=urls)

    canaries = PurgeProbes(
        [adapter], addresses={"varnish": varnish.url}, tag=prefix, purge_of=purge_of,  # type: ignore[arg-type]
        outbox=MemoryOutbox(), telemetry=telemetry, within_s=WITHIN_S,
    )  # fmt: skip
    canary(behind)
    assert (await canaries.check(adapter)).level is Level.BLOCK
    assert adapter.copies_live_ms() == 5_000
    assert telemetry.failures.labels("cdn")._value.get() == 1
    canary(behind, prefix)
    await adapter.purge(tags=[], urls=[varnish.url + PATH])
    assert (await canaries.check(adapter)).level is Level.OK
    assert adapter.copies_live_ms() is None


async def test_one_process_of_a_deployment_looks_and_the_others_act_on_what_it_finds(
    behind: Origin, redis_url: str, prefix: str
) -> None:
    """When it has ended, another one looks at once."""
    behind.answers[PATH] = Answer(CACHED, body="somebody else")
    client = shared_client(redis_url, timeout_s=PATIENCE_S)
    adapters = [VarnishAdapter("http://127.0.0.1:9") for _ in range(3)]
    requests: list[CdnAdapter] = []

    def purge_of(cdn: CdnAdapter) -> Purge:
        requests.append(cdn)
        return cdn.purge  # type: ignore[return-value]

    running = []
    for cdn in adapters:
        canaries = PurgeProbes(
            [cdn], addresses={"varnish": f"http://{HOST}:{behind.port}"}, tag=prefix, purge_of=purge_of,
            outbox=RedisOutbox(client, deployment=prefix), telemetry=Telemetry(), within_s=WITHIN_S,
        )  # fmt: skip
        running.append(asyncio.create_task(canaries.run(3_600)))
    try:
        await eventually(lambda: all(adapter.copies_live_ms() == 5_000 for adapter in adapters), within_s=60)
        assert len(requests) == 1
        leader = adapters.index(requests[0])  # type: ignore[arg-type]
        await ended([running[leader]])
        await eventually(lambda: len(requests) == 2, within_s=60)
    finally:
        await ended(running)
        for cdn in adapters:
            await cdn.aclose()
        await client.aclose()


class Inattentive(MemoryOutbox):
    """An outbox whose answer comes together with a cancellation: asyncio.wait_for() loses that one up to Python 3.11."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = asyncio.Event()
        self.lost = 0

    async def lead(self, name: str, *, token: str, lease_ms: int, now_ms: int) -> bool:
        """See PurgeOutbox. Only the first cancellation is lost."""
        self.waits.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.lost += 1
            if self.lost > 1:
                raise
        return False


async def test_probes_end_although_one_of_them_misses_a_cancellation() -> None:
    """The stop of an application waits for them."""
    adapter, outbox = VarnishAdapter("http://127.0.0.1:9"), Inattentive()
    probes = PurgeProbes(
        [adapter], addresses={"varnish": "http://127.0.0.1:9"}, tag="t", purge_of=lambda one: one.purge,  # type: ignore[arg-type, return-value]
        outbox=outbox, telemetry=Telemetry(), within_s=WITHIN_S,
    )  # fmt: skip
    running = asyncio.create_task(probes.run(3_600))
    await outbox.waits.wait()
    async with asyncio.timeout(PATIENCE_S):
        await ended([running])
    assert outbox.lost
    await adapter.aclose()


@needs_varnish
async def test_the_check_of_an_application_names_what_is_worst_first(
    varnish: Server, behind: Origin, redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the application's own credentials: its canary, dead letters of its queue, and the clock of its Redis."""
    quaestor = Quaestor(grid=False, redis_url=redis_url, deployment=prefix)
    module = types.ModuleType("checked_shop")
    module.app = QuaestorMiddleware(  # type: ignore[attr-defined]
        Starlette(), quaestor=quaestor, cdn=[VarnishAdapter(varnish.url, token=TOKEN, timeout_s=PATIENCE_S)]
    )
    monkeypatch.setitem(sys.modules, "checked_shop", module)
    canary(behind, probe_tag(quaestor.settings.scope))
    client = shared_client(redis_url, timeout_s=PATIENCE_S)
    outbox, queue = RedisOutbox(client, deployment=quaestor.settings.scope), f"varnish {varnish.url}"
    now_ms = int(time.time() * 1_000)
    await outbox.put(queue, ["0tag a"], until_ms=now_ms + 60_000, now_ms=now_ms)
    taken = await outbox.take(queue, token="t", count=1, lease_ms=60_000, now_ms=now_ms)
    await outbox.bury(queue, taken, reason="no such tag", now_ms=now_ms)
    await client.aclose()
    findings = await check_cdn("checked_shop:app", "varnish", address=varnish.url)
    assert [finding.level for finding in findings] == [Level.WARN, Level.OK, Level.OK]
    letters, seen, clock = (finding.sentence for finding in findings)
    assert "refused for good" in letters
    assert "gone within" in seen
    assert "clock of redis" in clock


async def test_the_application_answers_the_canary_anew_each_time_with_its_tag() -> None:
    site = Site(cdn=[TaggingCdn()])
    first, second = await site.get(PATH), await site.get(PATH)
    assert first.text != second.text
    assert first.headers["xkey"] == f"quaestor-{site.engine.settings.scope}-canary"
    assert first.headers["cdn-cache-control"] == "max-age=60"
    assert MARK in first.headers


async def test_each_address_needs_a_name() -> None:
    assert addresses(["varnish=https://shop.example/"]) == {"varnish": "https://shop.example"}
    with pytest.raises(ConfigurationError, match="NAME=URL"):
        addresses(["https://shop.example"])
