"""Purges of Souin do on its contract what the port promises, and it keeps answers for no longer than the application lets it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from quaestor.cdn_adapters import Answer, Delivered, Delivery, Rejected, Souin, Target
from quaestor.cdn_adapters.capabilities import TAG
from quaestor.cdn_adapters.requests import requests_of
from quaestor.errors import CdnError, RegistrationRefusedError
from tests.cdn_contracts.serving import BROKEN, CUT, HTML, Reply, Served, serving
from tests.cdn_contracts.souin import TOKEN, SouinContract, kept_s
from tests.cdn_contracts.test_purges import TAGS
from tests.cdn_contracts.test_secrets import shown
from tests.end_to_end.site import Site
from tests.hand_driven import reads
from tests.support import PATIENCE_S

pytestmark = pytest.mark.anyio
SHOP = "https://shop.example"


@dataclass
class World:
    contract: SouinContract
    served: Served
    place: Souin

    async def purge(self, *tags: str) -> list[Answer]:
        """The answer to each request of one purge."""
        batches = requests_of(self.place.capabilities, self.place.targets(tags=tags, urls=[f"{SHOP}/a"]))
        async with self.place.connect() as connection:
            return [await connection.send(batch) for batch in batches]

    def keep(self, name: str, *tags: str) -> str:
        """Have it keep an answer with these tags; its URL."""
        url = f"{SHOP}/{name}"
        self.contract.cache.store(url, self.place.response_headers(tags))
        return url


@pytest.fixture
def world() -> Iterator[World]:
    contract = SouinContract()
    with serving(contract) as served:
        yield World(contract, served, Souin(served.url, token=TOKEN, timeout_s=PATIENCE_S))


async def test_a_purge_removes_exactly_what_carries_the_tag(world: World) -> None:
    """One of several tags is enough; a tag that begins alike is another one. A second purge is harmless."""
    urls = [world.keep("a", "own-a", "both"), world.keep("b", "both", "own-b"), world.keep("c", "both-not")]
    assert await world.purge("both") == [Delivered()]
    assert [url in world.contract.cache for url in urls] == [False, False, True]
    assert await world.purge("both", "unknown") == [Delivered()]
    assert urls[2] in world.contract.cache


async def test_a_tag_with_any_characters_is_one_tag(world: World) -> None:
    """Separators, blanks and percent signs neither split nor join tags."""
    own = [world.keep(str(number), tag) for number, tag in enumerate(TAGS)]
    others = [world.keep(f"other{number}", tag + "z") for number, tag in enumerate(TAGS)]
    for tag in TAGS:
        await world.purge(tag)
    assert [url for url in own if url in world.contract.cache] == []
    assert [url for url in others if url not in world.contract.cache] == []


async def test_many_purges_go_in_requests_that_it_takes(world: World) -> None:
    """Cut by number and by bytes: none is refused, and none is forgotten."""
    tags = [f"tag-{number:04d}-{'x' * (number % 90)}" for number in range(700)]
    urls = [world.keep(tag, tag) for tag in tags]
    assert set(await world.purge(*tags)) == {Delivered()}
    assert len(world.served.requests) < 20
    assert [url for url in urls if url in world.contract.cache] == []


def test_an_answer_without_a_tag_cannot_be_purged(world: World) -> None:
    """Souin receives no purge by URL; the queue reports that an answer without a tag is served until its lifetime ends."""
    assert world.place.targets(tags=[], urls=[f"{SHOP}/a"]) == []


async def test_a_wrong_token_is_rejected_for_the_whole_place(world: World) -> None:
    """A wrong token rejects the whole place; all purges are kept until the token is corrected."""
    world.contract.token = "another"
    (answer,) = await world.purge("t")
    assert isinstance(answer, Rejected)
    assert answer.place_wide
    assert "token of Souin's configuration" in answer.reason


async def test_without_the_api_nothing_is_taken_for_purged(world: World) -> None:
    """Caddy's own API answers 404, which elsewhere means that there was nothing to purge. The remedy is named."""
    world.contract.enabled = False
    (answer,) = await world.purge("t")
    assert isinstance(answer, Rejected)
    assert answer.place_wide
    assert "quaestor cdn config souin" in answer.reason


@pytest.mark.parametrize(
    "page",
    [HTML, Reply(302, b"", {"location": "https://login.example/"}), Reply(204), Reply(404)],
    ids=["html", "redirect", "204 of another", "404"],
)
async def test_an_answer_of_something_else_is_no_success(world: World, page: Reply) -> None:
    """A 204 without the field that the printed configuration adds is no success: Souin sends it to every caller for
    every purge.
    """
    world.served.faults.append(page)
    (answer,) = await world.purge("t")
    assert isinstance(answer, Rejected)
    assert answer.place_wide


@pytest.mark.parametrize("fault", [BROKEN, CUT, Reply(500)], ids=["503", "cut", "500"])
async def test_a_broken_connection_is_tried_again(world: World, fault: Reply) -> None:
    url = world.keep("a", "t")
    world.served.faults.extend([fault, fault])
    with pytest.raises(CdnError) as failure:
        await world.purge("t")
    assert failure.value.retryable
    world.served.faults.clear()
    assert await world.purge("t") == [Delivered()]
    assert url not in world.contract.cache


async def test_its_token_is_shown_nowhere(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Souin's token is not shown at debug level, nor when an answer repeats it."""
    caplog.set_level(logging.DEBUG)
    texts = await shown(world.place, world.served, [TOKEN], lambda: setattr(world.contract, "token", "another"), caplog)
    assert any(request.fields.get("quaestor-purge-token") == TOKEN for request in world.served.requests)
    assert [text for text in texts if TOKEN in text] == []


async def test_souin_keeps_an_answer_for_the_rest_of_its_lifetime() -> None:
    """Souin does not subtract Age; an answer that spent part of its lifetime in the application's cache gets only the
    rest.
    """
    site = Site(cdn=[Delivery(Souin("http://unused", token=TOKEN))])
    left = {}
    for _ in range(3):
        fields = (await site.get()).headers
        left[int(fields["age"])] = kept_s(fields.raw, now_s=site.engine.clock() / 1_000)
        site.engine.clock.now_ms += 20_000
    lives_s = int(fields["cdn-cache-control"].partition("=")[2])
    assert left == {age_s: pytest.approx(lives_s - age_s, abs=1) for age_s in (0, 20, 40)}
    assert site.runs == 1


async def test_an_answer_that_dies_on_its_way_is_not_to_be_kept_by_it() -> None:
    """A handler's own word to Souin is not passed on either, where it is not the handler that decides."""

    async def handler(request: Request) -> Response:
        reads()
        return JSONResponse({}, headers={"souin-cache-control": "max-age=31536000"})

    site = Site(handler, cdn=[Delivery(Souin("http://unused", token=TOKEN))])
    assert (await site.get("/kept")).headers["souin-cache-control"] == "public"
    site.engine.registry.before_register = refused
    fields = (await site.get("/refused")).headers
    assert kept_s(fields.raw, now_s=site.engine.clock() / 1_000) == 0
    assert "souin-cache-control" not in fields


async def test_an_answer_that_nobody_may_keep_is_not_kept_by_it() -> None:
    """An answer that cannot be purged, because its URL has too many spellings, loses its permission to be stored in
    every field.
    """
    site = Site(cdn=[Delivery(Souin("http://unused", token=TOKEN))], sort_query=True)
    names = "abcdefghijklmnopqrst"
    for n in range(20):
        answer = await site.get(f"/items?{'&'.join(names[n:] + names[:n])}")
    assert site.runs == 1
    assert kept_s(answer.headers.raw, now_s=site.engine.clock() / 1_000) == 0


async def refused() -> None:
    raise RegistrationRefusedError("invalidated meanwhile")


async def test_one_request_carries_all_tags_of_a_batch(world: World) -> None:
    """As Souin's own words have it: the tags in one field, a comma and a blank between them."""
    async with world.place.connect() as connection:
        await connection.send([Target(TAG, "one"), Target(TAG, "two")])
    (request,) = world.served.requests
    assert (request.method, request.target) == ("PURGE", "/souin-api/souin")
    assert request.fields["surrogate-key"] == "one, two"
