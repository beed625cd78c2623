"""Privacy of answers: credentials, declared scopes, and web cache deception."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.end_to_end.declaring_site import Site, open_site
from tests.support import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture
async def site(mongo_url: str, prefix: str) -> AsyncIterator[Site]:
    async with open_site(mongo_url, prefix) as opened:
        yield opened


async def test_an_undeclared_route_is_shared_among_strangers_only(site: Site) -> None:
    assert (await site.warm("/undeclared")).said["who"] is None
    for name in ("authorization", "cookie", "x-api-key"):
        answer = await site.ask("/undeclared", **{name: "session=ann"})
        assert not answer.hit
        assert answer.headers["cache-control"] == "private, no-cache"


async def test_a_public_route_is_shared_with_everybody(site: Site) -> None:
    await site.warm("/public")
    assert (await site.ask("/public", authorization="Bearer ann", cookie="session=1")).hit


async def test_users_are_given_their_own_answers_only(site: Site) -> None:
    ann = await site.warm("/me", authorization="Bearer ann")
    bob = await site.warm("/me", authorization="Bearer bob")
    assert (ann.said["who"], bob.said["who"]) == ("ann", "bob")
    assert (await site.ask("/me", authorization="Bearer ann")).said == ann.said
    answer = await site.ask("/me")
    assert not answer.hit
    assert answer.said["who"] is None
    assert answer.headers["cache-control"] == "private"


async def test_an_answer_for_one_user_is_private_outside_and_no_cdn_hears_of_it(site: Site) -> None:
    answer = await site.warm("/me", authorization="Bearer ann")
    assert answer.headers["cache-control"] == "private, max-age=0, must-revalidate"
    assert answer.headers["vary"] == "*"  # its route does not say what `by` reads, so no client may keep it
    assert "cdn-cache-control" not in answer.headers
    assert "xkey" not in answer.headers
    assert "ann" not in str(answer.headers)


async def test_a_write_invalidates_what_every_user_was_given(site: Site) -> None:
    users = ["Bearer ann", "Bearer bob"]
    for user in users:
        await site.warm("/me", authorization=user)
    await site.items.insert_one({"kind": "a"})
    for user in users:

        async def changed(user: str = user) -> bool:
            return bool((await site.ask("/me", authorization=user)).said["items"] == 2)

        await eventually(changed)


async def test_a_session_cookie_is_an_identity_by_itself(site: Site) -> None:
    ann = await site.warm("/session", cookie="other=1; session=ann")
    assert (await site.ask("/session", cookie="session=ann; tracking=xyz")).said == ann.said
    assert (await site.ask("/session", cookie="session=bob")).said["who"] == "bob"


async def test_a_declared_scope_overrules_a_security_scheme(site: Site) -> None:
    first = await site.warm("/role", authorization="Bearer editor-ann")
    assert (await site.ask("/role", authorization="Bearer editor-bob")).said == first.said
    assert (await site.ask("/role", authorization="Bearer reader-cid")).said["who"] == "reader"


async def test_a_security_scheme_makes_a_route_private(site: Site) -> None:
    for headers in ({}, {"authorization": "Bearer ann"}):
        for _ in range(3):
            answer = await site.ask("/secured", **headers)
            assert not answer.hit
            assert answer.headers["cache-control"] == "private, no-cache"
    assert site.runs["secured"] == 6
    for key in ("ann", "bob", "ann"):
        assert (await site.ask(f"/keyed?key={key}")).said["who"] == key
    assert site.runs["keyed"] == 3


async def test_an_answer_that_sets_a_cookie_is_never_stored(site: Site) -> None:
    for run in (1, 2):
        answer = await site.ask("/login")
        assert answer.said["run"] == run
        assert answer.headers["set-cookie"].startswith("session=secret")


# Web cache deception: what a path looks like does not decide who may see the answer.


@pytest.mark.parametrize(
    "path",
    ["/account", "/account/x.css", "/account/a.js?v=1", "/account;x.css", "/account%2Fx.css", "/account%00.png",
     "/account/..%2fpublic", "/account//static/x.ico"],
)  # fmt: skip
async def test_a_private_page_stays_private_under_any_path(site: Site, path: str) -> None:
    for user in ("ann", "bob"):
        answer = await site.ask(path, authorization=f"Bearer {user}")
        assert not answer.hit
        assert answer.said["who"] == user
        assert "cdn-cache-control" not in answer.headers
        assert "xkey" not in answer.headers
    assert site.runs["account"] == 2


async def test_a_rule_for_a_path_is_not_one_for_what_lies_below(site: Site) -> None:
    await site.warm("/ruled/a", cookie="a=1")
    for _ in range(2):
        assert not (await site.ask("/ruled/a/x.css", cookie="a=1")).hit
        assert not (await site.ask("/ruled/a/x.css")).hit
