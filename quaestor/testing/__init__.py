"""Tools for the tests of an application: assertions, and the plug-in `quaestor.testing.plugin` for pytest (docs/testing.md)."""

from quaestor.testing.assertions import assert_cached, assert_cached_async, assert_not_cached, assert_not_cached_async

__all__ = ["assert_cached", "assert_cached_async", "assert_not_cached", "assert_not_cached_async"]
