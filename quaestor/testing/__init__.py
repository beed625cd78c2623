"""Tools for the tests of an application: assertions, a virtual clock, real servers, and the plug-in `quaestor.testing.plugin` for
pytest (docs/testing.md)."""

from quaestor.testing.assertions import (
    assert_cached,
    assert_cached_async,
    assert_invalidated_by,
    assert_invalidated_by_async,
    assert_not_cached,
    assert_not_cached_async,
)
from quaestor.testing.clock import VirtualClock
from quaestor.testing.servers import mongo_url, redis_url

__all__ = [
    "VirtualClock",
    "assert_cached",
    "assert_cached_async",
    "assert_invalidated_by",
    "assert_invalidated_by_async",
    "assert_not_cached",
    "assert_not_cached_async",
    "mongo_url",
    "redis_url",
]
