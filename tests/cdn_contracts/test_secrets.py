"""Credentials of CDNs are found nowhere: not in reprs, logs, errors, metrics, dead letters, nor as a plain text in any object."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from quaestor.cdn_adapters import Target, VarnishAdapter, varnish_vcl
from quaestor.cdn_adapters.edgegrid import EdgeGridCredentials
from quaestor.cdn_adapters.place import Place
from quaestor.cdn_adapters.sender import Sender
from quaestor.cdn_adapters.sender_options import SenderContext, SenderOptions
from quaestor.cdn_adapters.varnish_node import VarnishNode
from quaestor.errors import ConfigurationError
from quaestor.observability.telemetry import Telemetry
from quaestor.store.outbox_memory import MemoryOutbox
from quaestor.testing import VirtualClock
from tests.cdn_contracts.providers import World
from tests.cdn_contracts.purging import send_at_once
from tests.cdn_contracts.serving import Received, Reply, Served, serving
from tests.support import eventually

pytestmark = pytest.mark.anyio

TOKEN = "open-sesame-of-the-tests"
OURS = ("quaestor",)


def plain_texts(thing: object, seen: set[int]) -> Iterator[str]:
    """Yield the texts that are reachable from an object of ours, except the ones in a SecretStr."""
    if id(thing) in seen or isinstance(thing, SecretStr):
        return
    seen.add(id(thing))
    if isinstance(thing, str):
        yield thing
    elif isinstance(thing, bytes):
        yield thing.decode(errors="replace")
    elif isinstance(thing, Mapping):
        yield from plain_texts([*thing.keys(), *thing.values()], seen)
    elif isinstance(thing, Sequence | set | frozenset):
        for member in thing:
            yield from plain_texts(member, seen)
    elif type(thing).__module__.startswith(OURS):
        slots = (name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ()))
        values = [getattr(thing, name, None) for name in slots] + list(getattr(thing, "__dict__", {}).values())
        yield from plain_texts(values, seen)


async def shown(
    place: Place, served: Served, secrets: Sequence[str], revoke: Callable[[], None], log: Any
) -> list[str]:
    """Everything that anybody sees of purges that are made, refused with the secrets repeated, and refused for them."""

    clock = VirtualClock()

    async def sleep(seconds: float) -> None:
        clock.advance(timedelta(seconds=seconds))  # a provider that says "slowly" is waited for in no time
        await asyncio.sleep(0)

    async def put(name: str) -> None:
        await sender.put(place.targets(tags=[name], urls=[f"https://shop.example/{name}"])[:1], until_ms=1 << 50)

    telemetry, outbox = Telemetry(), MemoryOutbox()
    sender = Sender(
        place, outbox, options=SenderOptions(), context=SenderContext.of(telemetry, clock=clock, sleep=sleep)
    )
    said: list[Any] = []
    telemetry.hooks.failures.append(said.append)
    sender.start()
    echo = " ".join(secrets)
    served.faults.extend(
        [Reply(400, echo.encode()), Reply(500, json.dumps({"error": echo}).encode()), Reply(429, echo.encode())]
    )
    await put("a")
    await put("b")
    await eventually(lambda: not served.faults)
    revoke()
    before = len(served.requests)
    await put("c")
    await eventually(lambda: len(served.requests) > before)
    texts = [str(await outbox.dead(sender.queue, count=10)), str(await outbox.waiting(sender.queue, count=10))]
    texts += [*plain_texts(sender, set()), repr(sender), repr(place), repr(vars(place)), repr(place.capabilities)]
    await sender.aclose()
    texts += [record.getMessage() + str(vars(record)) for record in log.records]
    texts += [str(line) for line in said]
    return [*texts, telemetry.exposition().decode(), sender.queue, str(await outbox.queues())]


async def test_no_credential_of_a_hosted_provider_is_shown(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """No credential is shown at debug level, nor when the provider repeats it in an error, a refusal or a rate limit."""
    caplog.set_level(logging.DEBUG)
    await send_at_once(world, [Target(*world.place.targets(tags=["t"], urls=["https://shop.example/t"])[0])])
    secrets = (*world.provider.secrets, *getattr(world.contract, "tokens", ()))
    texts = await shown(world.place, world.served, secrets, lambda: world.provider.revoke(world.contract), caplog)
    assert [secret for secret in secrets for text in texts if secret in text] == []


class VarnishContract:
    """A Varnish with a token."""

    token = TOKEN

    def answer(self, request: Received) -> Reply:
        if request.fields.get("quaestor-purge-token") != self.token:
            return Reply(403)
        return Reply(200, b"", {"quaestor-purged": "1"})


async def test_the_token_of_a_varnish_is_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    contract = VarnishContract()
    with serving(contract) as served:
        node = VarnishNode(served.url, soft=False, token=SecretStr(TOKEN), tags=True, timeout_s=10)
        texts = await shown(node, served, [TOKEN], lambda: setattr(contract, "token", "another"), caplog)
        assert any(request.fields.get("quaestor-purge-token") == TOKEN for request in served.requests)
    assert [text for text in texts if TOKEN in text] == []
    adapter = VarnishAdapter("http://unused", token=TOKEN)
    assert TOKEN not in set(plain_texts(adapter, set()))


def test_errors_about_credentials_do_not_repeat_them() -> None:
    """A password in the address would be part of names of queues, and of labels of metrics: it is refused."""
    with pytest.raises(ConfigurationError) as failure:
        VarnishAdapter("http://user:hunter2@127.0.0.1:6081")
    assert "hunter2" not in str(failure.value)
    with pytest.raises(ConfigurationError) as failure:
        VarnishAdapter("http://unused", token="hunter2\u00e9")
    assert "hunter2" not in str(failure.value)
    with pytest.raises(ConfigurationError) as failure:
        varnish_vcl("127.0.0.1", 80, purge_token=SecretStr("hunter2"))
    assert "hunter2" not in str(failure.value)


def test_credentials_of_akamai_are_all_secret() -> None:
    credentials = EdgeGridCredentials(
        client_token=SecretStr("one-1"), client_secret=SecretStr("two-2"), access_token=SecretStr("three-3")
    )
    assert not {"one-1", "two-2", "three-3"} & set(repr(credentials).replace("'", " ").split())
    assert varnish_vcl("127.0.0.1", 80, purge_token=SecretStr(TOKEN)) == varnish_vcl("127.0.0.1", 80, purge_token=TOKEN)
