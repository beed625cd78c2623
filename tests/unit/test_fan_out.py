"""Several CDN adapters as one: an unreachable adapter keeps no other from the purge, and all errors are reported."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from quaestor.cdn_adapters import BatchLimits, FanOut, MemoryAdapter, MemoryCdn, VarnishAdapter
from quaestor.cdn_adapters.place import TAG, Target
from quaestor.clock import system_clock
from quaestor.errors import CdnError, ConfigurationError
from quaestor.observability.telemetry import Telemetry
from quaestor.store.outbox_memory import MemoryOutbox
from tests.hand_driven import TaggingCdn

pytestmark = pytest.mark.anyio

URL = "https://edge.example/x"
PATIENT = BatchLimits(first_retry_ms=60_000, last_retry_ms=60_000)


def two() -> tuple[MemoryCdn, MemoryCdn, FanOut]:
    first, other = MemoryCdn("one"), MemoryCdn("other")
    return first, other, FanOut("edge", [MemoryAdapter(cdn, limits=PATIENT) for cdn in (first, other)])


async def test_an_absent_cdn_does_not_keep_the_others_from_their_purge() -> None:
    """The purge that the absent CDN has not taken is pending, at that CDN alone."""
    first, other, edge = two()
    for cdn in (first, other):
        cdn.store(URL, edge.response_headers(["t"]))
    first.outage = CdnError("away", retry_after_s=7.0)
    with pytest.raises(CdnError, match="away") as failure:
        await edge.purge(tags=["t"], urls=[])
    assert failure.value.retryable
    assert failure.value.retry_after_s == 7.0
    assert (URL in first, URL in other) == (True, False)
    assert edge.pending == 1
    await edge.aclose()


async def test_every_error_is_named_once_and_one_retryable_error_makes_all_retryable() -> None:
    first, other, edge = two()
    first.outage, other.outage = CdnError("closed for good", retryable=False), CdnError("a moment, please")
    with pytest.raises(CdnError) as failure:
        await edge.purge(tags=["t"], urls=[])
    assert str(failure.value) == "closed for good; a moment, please"
    assert failure.value.retryable
    with pytest.raises(CdnError) as refused:
        await edge.purge(tags=[], urls=["/relative"])
    assert str(refused.value).count("/relative") == 1
    assert not refused.value.retryable
    await edge.aclose()


async def test_a_bug_in_an_adapter_is_not_taken_for_an_outage() -> None:
    class Broken(MemoryAdapter):
        async def purge(self, *, tags: object, urls: object) -> None:
            raise ZeroDivisionError

    edge = FanOut("edge", [MemoryAdapter(), Broken()])
    with pytest.raises(ZeroDivisionError):
        await edge.purge(tags=["t"], urls=[])
    await edge.aclose()


def test_a_response_carries_the_headers_of_all_each_once() -> None:
    edge = FanOut("edge", [MemoryAdapter(), VarnishAdapter("http://localhost:6081"), MemoryAdapter()])
    assert edge.response_headers(["a", "b"]) == [(b"surrogate-key", b"a b"), (b"xkey", b"a b")]
    assert edge.response_headers([]) == []


def test_a_fan_out_to_nobody_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="edge"):
        FanOut("edge", [])


class Stranger(TaggingCdn):
    """An adapter that knows no outbox, and is away at first."""

    away = True

    async def purge(self, *, tags: Sequence[str], urls: Sequence[str]) -> None:
        if self.away:
            self.away = False
            raise CdnError("away", retry_after_s=0.01)
        await super().purge(tags=tags, urls=urls)


async def test_with_an_outbox_an_adapter_that_knows_none_is_purged_until_it_has_acknowledged() -> None:
    """The others go their own way meanwhile."""
    stranger, known = Stranger(), MemoryAdapter()
    both = FanOut("both", [stranger, known])
    both.begin(MemoryOutbox(), telemetry=Telemetry(), repurge_after_ms=60_000)
    wait = await both.put(tags=["t"], urls=[], until_ms=system_clock() + 60_000)
    await wait()
    assert stranger.purged == ["t"]
    assert known.cdn.purged == [Target(TAG, "t")]
    await both.aclose()
