"""Whether a stored entry may be used: what its registrations, its lifetime and its origin in another process allow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quaestor.model import CachedResponse
from quaestor.policy import DEFAULT, RoutePolicy
from quaestor.read_path.reuse import Use
from tests.hand_driven import START_MS, HandEngine

ENTRY = CachedResponse(
    key="http://shop.test/a", status=200, headers=(), body=b"x", etag=b'"1"', stored_at_ms=START_MS,
    fresh_until_ms=START_MS + 1_000, stale_until_ms=START_MS + 5_000, registrations=("me:1",), tags=(), resource="/a",
)  # fmt: skip
EXPLICIT = replace(ENTRY, registrations=())


@pytest.mark.parametrize(
    ("elapsed_ms", "valid", "servable"),
    [(0, True, True), (999, True, True), (1_000, True, False), (4_999, True, False), (5_000, False, False)],
)
def test_an_entry_is_servable_in_its_lifetime_and_valid_for_as_long_as_it_may_be_stale(
    elapsed_ms: int, valid: bool, servable: bool
) -> None:
    engine = HandEngine()
    engine.clock.now_ms += elapsed_ms
    usability = engine.read_path.usability
    assert usability.valid(ENTRY, engine.clock()) is valid
    assert usability.servable(ENTRY) is servable


def test_a_write_ends_every_use() -> None:
    """Even a stale answer, or one instead of an error, never shows data that a write has changed."""
    engine = HandEngine()
    usability, policy = (
        engine.read_path.usability,
        RoutePolicy(stale_while_revalidate_ms=60_000, stale_if_error_ms=60_000),
    )
    engine.clock.now_ms += 2_000
    assert usability.use(ENTRY, policy, {}) is Use.STALE_WHILE_REVALIDATE
    assert usability.may_serve_on_error(ENTRY, policy, {})
    engine.registry.dead.add("me:1")
    assert usability.use(ENTRY, policy, {}) is Use.VALIDATE
    assert not usability.may_serve_on_error(ENTRY, policy, {})
    assert not usability.trusted(ENTRY)


def test_the_directives_of_a_request_count_only_for_what_no_query_guards() -> None:
    """An entry that queries guard is as good as the origin's answer."""
    usability = HandEngine(explicit=True).read_path.usability
    assert usability.use(ENTRY, DEFAULT, {"no-cache": None}) is Use.FRESH
    assert usability.use(EXPLICIT, DEFAULT, {"no-cache": None}) is Use.VALIDATE


def test_an_entry_stored_before_this_process_could_learn_of_its_death_is_not_trusted() -> None:
    engine = HandEngine()
    assert engine.read_path.usability.trusted(ENTRY)
    engine.registry.known_since_ms = START_MS + 1
    assert not engine.read_path.usability.trusted(ENTRY)
    assert engine.read_path.usability.servable(ENTRY), "in memory it got there with this process listening"


@pytest.mark.parametrize("explicit", [False, True])
def test_an_entry_guarded_by_its_lifetime_alone_is_trusted_only_on_request(explicit: bool) -> None:
    """Another process may have been configured to allow that; this one promises more unless it has the same setting."""
    assert HandEngine(explicit=explicit).read_path.usability.trusted(EXPLICIT) is explicit
