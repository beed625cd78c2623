"""Rooms that are importable without the parts they do not need: each is imported in a fresh process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.architecture.sources import ROOT

IMPORTED = "import sys, {module}; print(*sorted(sys.modules))"
LIGHT = (
    ("quaestor.cache_sketch", ("redis", "pymongo", "fastapi")),
    ("quaestor.cache_sketch.memory", ("redis", "pymongo", "fastapi")),
    ("quaestor.cache_sketch.wire_format", ("redis", "pymongo", "fastapi", "asyncio")),
    ("quaestor.store.memory", ("redis", "pymongo", "fastapi")),
    ("quaestor.store.index_memory", ("redis", "pymongo", "fastapi")),
    ("quaestor.capture", ("redis", "fastapi", "pyspark", "quaestor.invalidation", "quaestor.event_layer")),
    ("quaestor.capture.declared", ("redis", "fastapi", "pyspark", "quaestor.invalidation")),
    ("quaestor.capture.catalog", ("redis", "fastapi", "pyspark", "quaestor.invalidation", "quaestor.event_layer")),
    (
        "quaestor.client.transport",
        ("redis", "pymongo", "fastapi", "starlette", "quaestor.invalidation", "quaestor.app"),
    ),
    ("quaestor.runtime.services", ("redis", "httpx", "fastapi")),
    ("middleware", ("redis", "httpx", "opentelemetry")),
    ("quaestor.cdn_adapters", ("redis", "pymongo", "fastapi", "quaestor.invalidation", "quaestor.app")),
)


@pytest.mark.parametrize(("module", "unneeded"), LIGHT, ids=[module for module, _ in LIGHT])
def test_importing_a_room_imports_nothing_that_it_does_not_need(module: str, unneeded: tuple[str, ...]) -> None:
    """Reading the filter needs no Redis client, and capture imports nothing of the grid."""
    run = subprocess.run(
        [sys.executable, "-c", IMPORTED.format(module=module)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(unneeded) & set(run.stdout.split()) == set()


def test_the_redis_part_of_the_cache_sketch_is_there_when_it_is_asked_for() -> None:
    from quaestor import cache_sketch

    assert cache_sketch.RedisCacheSketch.__module__ == "quaestor.cache_sketch.redis"
    with pytest.raises(AttributeError, match="no attribute 'NoSketch'"):
        _ = cache_sketch.NoSketch
