"""Faults of a hosted provider: each has a name, an answer or error, and a rule for the next attempt."""

from __future__ import annotations

import logging

import pytest
from pydantic import SecretStr

from quaestor.cdn_adapters import Delivered, Rejected, Target, Throttled
from quaestor.cdn_adapters.capabilities import TAG, URL
from quaestor.errors import CdnError, ConfigurationError
from tests.cdn_contracts.providers import PROVIDERS, World
from tests.cdn_contracts.purging import purge, send_at_once
from tests.cdn_contracts.serving import BROKEN, CUT, HTML, Reply
from tests.cdn_contracts.test_purges import refill

pytestmark = pytest.mark.anyio

A_URL = "https://shop.example/a"


def one(world: World) -> list[Target]:
    """One target that the place can express."""
    return world.place.targets(tags=["q-1a2b"], urls=[A_URL])[:1]


async def test_a_revoked_token_is_rejected_for_the_whole_place(world: World) -> None:
    """A revoked token and a wrong signature reject the whole place, and all purges are kept.

    The reason names credentials, and shows none.
    """
    await send_at_once(world, one(world))
    world.provider.revoke(world.contract)
    if world.place.name in ("azure-front-door", "google-cloud-cdn"):  # no other access token is to be had
        with pytest.raises(CdnError, match="no access token"):
            await send_at_once(world, one(world))
        return
    answer = await send_at_once(world, one(world))
    assert isinstance(answer, Rejected)
    assert answer.place_wide
    assert not any(secret in answer.reason for secret in world.provider.secrets)


async def test_a_storm_of_429_is_throttled_until_the_bucket_has_filled(world: World) -> None:
    """Never a loss: each says when to ask again, as far as the provider does, and afterwards the purge is taken."""
    if world.provider.exhaust is None:
        pytest.skip("it has no limit")
    await send_at_once(world, one(world))
    for _ in range(5):
        world.provider.exhaust(world.contract)
        answer = await send_at_once(world, one(world))
        assert isinstance(answer, Throttled)
        assert answer.retry_after_s is None or 0 < answer.retry_after_s <= 3_600
    refill(world)
    assert not isinstance(await send_at_once(world, one(world)), Throttled | Rejected)


async def test_the_wait_that_a_429_names_is_kept(world: World) -> None:
    world.served.faults.extend([Reply(429, b"{}", {"retry-after": "7"})] * 3)
    if world.place.name in ("google-cloud-cdn", "azure-front-door"):
        world.served.faults.clear()
        await send_at_once(world, one(world))  # with its token
        world.served.faults.append(Reply(429, b"{}", {"retry-after": "7"}))
    answer = await send_at_once(world, one(world))
    assert isinstance(answer, Throttled)
    assert answer.retry_after_s == 7


@pytest.mark.parametrize("fault", [BROKEN, CUT, Reply(500, b"{}"), Reply(408, b"")], ids=["503", "cut", "500", "408"])
async def test_a_provider_that_is_broken_is_an_error_to_try_again(world: World, fault: Reply) -> None:
    """5xx, and a connection that is cut without an answer: the purge may have happened or not, and twice is harmless."""
    await send_at_once(world, one(world))
    world.served.faults.append(fault)
    with pytest.raises(CdnError) as failure:
        await send_at_once(world, one(world))
    assert failure.value.retryable
    assert world.place.name in str(failure.value)
    refill(world)
    assert not isinstance(await send_at_once(world, one(world)), Throttled | Rejected)


@pytest.mark.parametrize(
    "page", [HTML, Reply(302, b"", {"location": "https://login.example/"})], ids=["html", "redirect"]
)
async def test_a_web_page_is_no_success(world: World, page: Reply) -> None:
    """200 with a page is a captive portal or a wrong address: nothing was purged, and nothing secret follows the redirect."""
    await send_at_once(world, one(world))
    world.served.faults.append(page)
    answer = await send_at_once(world, one(world))
    assert isinstance(answer, Rejected)
    assert answer.place_wide


async def test_a_batch_that_is_too_long_is_rejected_for_itself_only(world: World) -> None:
    """The contract enforces what the capabilities say: one request with more is refused, and the others go on."""
    kind = world.place.capabilities.kinds[0]
    most = world.place.capabilities.batch_of(kind)
    if world.place.name in ("bunny", "webhook", "netlify", "keycdn"):
        pytest.skip("it takes one at a time, or as many as fit into a request")
    many = [f"https://shop.example/{number}" if kind == URL else f"t{number}" for number in range(12 * most + 1_000)]
    targets = world.place.targets(tags=many, urls=[]) if kind == TAG else world.place.targets(tags=[], urls=many)
    answer = await send_at_once(world, targets)
    assert isinstance(answer, Rejected | Throttled)
    if isinstance(answer, Rejected):
        assert not answer.place_wide


async def test_a_secret_is_in_no_repr_no_error_and_no_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """No secret is shown after any failure, at debug level, or when the provider repeats the secret itself."""
    caplog.set_level(logging.DEBUG)
    shown = [repr(world.place), repr(vars(world.place)), repr(world.place.capabilities), world.place.address]
    await purge(world, tags=["t"], urls=[A_URL])
    secrets = (*world.provider.secrets, *getattr(world.contract, "tokens", ()))
    echo = Reply(400, " ".join(secrets).encode(), {"content-type": "text/plain"})
    world.served.faults.append(echo)
    shown.append(repr(await send_at_once(world, one(world))))
    world.served.faults.append(Reply(500, echo.body))
    with pytest.raises(CdnError) as failure:
        await send_at_once(world, one(world))
    shown.append(str(failure.value))
    world.provider.revoke(world.contract)
    try:
        shown.append(repr(await send_at_once(world, one(world))))
    except CdnError as error:
        shown.append(repr(error))
    shown += [record.getMessage() for record in caplog.records]
    parts = [
        part for part in vars(world.place).values() if hasattr(part, "__dict__") and not isinstance(part, SecretStr)
    ]
    shown += [repr(vars(world.place)), repr([vars(part) for part in parts])]
    assert [secret for secret in secrets for text in shown if secret in text] == []


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_base_url_without_tls_is_refused(name: str) -> None:
    """Only addresses of this machine may lack TLS, for tests.

    httpx verifies certificates, and no setting turns that off.
    """
    with pytest.raises(ConfigurationError, match="https"):
        PROVIDERS[name].place("http://api.example")


async def test_a_purge_that_was_delivered_is_delivered_again(world: World) -> None:
    """After an error nobody knows whether it happened: the same request once more is a success."""
    for _ in range(2):
        refill(world)
        assert all(isinstance(answer, Delivered) for answer in await purge(world, tags=["t"], urls=[A_URL]))
