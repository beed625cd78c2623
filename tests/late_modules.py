"""Modules that a process loads at first use only: the one list of what importing Quaestor must not load (docs/adr/0023)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

FEW_NEED: Final = (
    *("structlog", "rich", "pygments"),
    *("re2", "regex", "zstandard", "pybloom_live", "moka_py", "mpmath", "s2geometry", "snowballstemmer", "stop_words"),
    *("jsonpatch", "websockets", "redis", "httpx", "typer", "opentelemetry", "pyspark", "numpy", "pyarrow"),
    *("quaestor.query.expressions.operators", "quaestor.query.json_schema.compiler"),
    *("quaestor.query.pcre.translate", "quaestor.channels", "quaestor.continuous"),
    *(
        "quaestor.admin",
        "quaestor.cdn_adapters",
        "quaestor.cli",
        "quaestor.client",
        "quaestor.dashboard",
        "quaestor.demo",
    ),
    *(
        "quaestor.doctor",
        "quaestor.explain",
        "quaestor.proxy",
        "quaestor.redis",
        "quaestor.rest",
        "quaestor.simulation",
    ),
    *(
        "quaestor.incremental.planning",
        "quaestor.incremental.result",
        "quaestor.realtime.live",
        "quaestor.realtime.stage",
        "quaestor.live.followed_routes",
        "quaestor.live.long_poll",
        "quaestor.live.streams",
    ),
    *("quaestor.shared_storage", "quaestor.statistics", "quaestor.tables", "quaestor.testing"),
)
"""Not in a started application that answers one route from the cache."""

A_QUAESTOR_NEEDS: Final = (
    *("pymongo", "prometheus_client", "cryptography"),
    *("quaestor.runtime.parts", "quaestor.runtime.lifecycle", "quaestor.invalidation.grid", "quaestor.realtime.codec"),
)
"""Not in a process that has imported the two names, and made no Quaestor."""


def among(unwanted: Iterable[str], loaded: Collection[str]) -> list[str]:
    """The loaded modules that are, or lie in, one of the unwanted ones."""
    roots = set(unwanted)
    return sorted(name for name in loaded if any(".".join(name.split(".")[:end]) in roots for end in range(1, 9)))
