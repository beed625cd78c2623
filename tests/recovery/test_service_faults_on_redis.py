"""Background services of a deployment on Redis, and of one before a CDN, are struck by exceptions as in
test_service_faults.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quaestor.cdn_adapters import VarnishAdapter
from quaestor.testing.servers import Server
from tests.end_to_end.varnish_site import TOKEN, behind, needs_varnish, varnish
from tests.recovery.struck_services import BEFORE_A_CDN, ON_REDIS
from tests.recovery.struck_world import alive_threads, goes_on
from tests.support import PATIENCE_S

__all__ = ["behind", "varnish"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.anyio,
    pytest.mark.timeout(200),
    pytest.mark.filterwarnings("ignore:coroutine '.*' was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def no_threads_before() -> None:
    assert alive_threads() == []


@pytest.mark.parametrize("service", ON_REDIS)
async def test_a_service_on_redis_that_is_struck_everywhere_goes_on(
    mongo_url: str, redis_url: str, prefix: str, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every fault is counted, answers follow every change meanwhile, the cache serves again afterwards, the stop returns."""
    struck = ON_REDIS[service]
    await goes_on(mongo_url, prefix, service, struck, monkeypatch, redis_url=redis_url, deployment=prefix)


@needs_varnish
@pytest.mark.parametrize("service", BEFORE_A_CDN)
async def test_a_service_of_a_cdn_that_is_struck_everywhere_goes_on(
    mongo_url: str, prefix: str, service: str, varnish: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purges wait in the outbox while their sender is down; entries die at once."""
    struck = BEFORE_A_CDN[service]
    addresses = [address.format(varnish=varnish.url) for address in struck.settings.get("cdn_addresses", ())]
    if addresses:
        struck = replace(struck, settings={**struck.settings, "cdn_addresses": addresses})
    adapter = VarnishAdapter(varnish.url, token=TOKEN, timeout_s=PATIENCE_S)
    await goes_on(mongo_url, prefix, service, struck, monkeypatch, cdn=[adapter])
