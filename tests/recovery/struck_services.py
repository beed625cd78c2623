"""The table of background services that tests strike with faults, one row for each and for each place where it runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from quaestor import Quaestor
from quaestor.channels.datasets import Dataset
from quaestor.channels.runs.stored_pages import StoredPages
from quaestor.continuous.installed import InstalledQuery
from quaestor.tables.schema import Column, Schema, Type
from quaestor.ttl.published import PublishedParameters, SupersededError
from tests.inputs.flights import is_hit
from tests.support import eventually

TOKEN: Final = "5t0Zk_v1r-0mXbQeYw8LhN2dPfJ7sUaC"
QUICKLY_S: Final = 0.05

Stir = Callable[[Quaestor, httpx.AsyncClient], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A service that is struck.

    settings: of the Quaestor.
    pauses: constants of the product that are shorter in the test, by their full name.
    stir: gives the service work in each round.
    dashboard: the site has one.
    settle_s: time in which writes take effect, in seconds.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    pauses: Mapping[str, float] = field(default_factory=dict)
    stir: Stir | None = None
    dashboard: bool = False
    settle_s: float = 10.0


async def reset(quaestor: Quaestor, http: httpx.AsyncClient) -> None:
    """Everything that is stored is dropped."""
    quaestor.parts.effects.reset("by a test")

    async def missed() -> bool:
        return not await is_hit(http, "/flights")

    await eventually(missed)


async def publish(quaestor: Quaestor, http: httpx.AsyncClient) -> None:
    """An operator publishes the parameters of the settings once more."""
    published = PublishedParameters(quaestor.parts.storage.layer, scope=quaestor.settings.scope)
    newest = published.history()[-1]
    with suppress(SupersededError):
        published.publish(None, base=newest.number, by="a test", now_ms=quaestor.parts.process.clock())


async def watch_dashboard(quaestor: Quaestor, http: httpx.AsyncClient) -> None:
    """An operator looks at the dashboard; while it is struck there may be nothing to show."""
    answer = await http.get("/quaestor/dashboard/data", headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status_code in (200, 503)


async def stand(quaestor: Quaestor, http: httpx.AsyncClient) -> None:
    """An order is published, and a query that stands delivers it to a file, once."""
    administration = await asyncio.to_thread(quaestor.parts.continuous.administration)
    catalogue, settings = administration.catalogue, quaestor.settings.continuous
    if "orders" not in await asyncio.to_thread(catalogue.names):
        catalogue.create("orders", Schema((Column("id", Type.BIGINT),)))
        query = InstalledQuery(name="orders", text="SELECT id FROM orders", every="1s", sinks=("file:orders.ndjson",))
        await asyncio.to_thread(administration.install, query, "beginning")
    orders = catalogue.open("orders")
    number = sum(file.rows for file in orders.snapshot().files.values())
    orders.append([{"id": number}])
    lines = Path(settings.delivery_folder, "orders.ndjson")

    def delivered() -> list[int]:
        return [json.loads(line)["row"]["id"] for line in lines.read_text().splitlines()] if lines.exists() else []

    await eventually(lambda: number in delivered(), within_s=60)
    assert sorted(delivered()) == list(range(number + 1))


async def subscribe(quaestor: Quaestor, http: httpx.AsyncClient) -> None:
    """A record is published, and a channel finds it for its subscriber, once."""
    channels = await asyncio.to_thread(quaestor.parts.channels.administration)
    if "Notes" not in await asyncio.to_thread(channels.parts.catalogue.names):
        await asyncio.to_thread(
            channels.interpreter.run,
            """
            CREATE ACTIVE DATASET Notes(id bigint) PRIMARY KEY id;
            CREATE BROKER b AT 'http://127.0.0.1:9/';
            CREATE CONTINUOUS CHANNEL News() PERIOD 1 SECOND FROM BEGINNING { SELECT n.id FROM Notes n WHERE is_new(n) };
            SUBSCRIBE TO News() ON b
            """,
        )
    notes = Dataset.open(channels.parts.catalogue, "Notes")
    number = len(await asyncio.to_thread(notes.records))
    await asyncio.to_thread(notes.insert, [{"id": number}])
    pages = StoredPages(channels.parts.catalogue)

    def delivered() -> list[int]:
        return [json.loads(row.record)["id"] for page in pages.after("News", "b", 0, 10_000) for row in page.rows]

    await eventually(lambda: number in delivered(), within_s=60)
    assert sorted(delivered()) == list(range(number + 1))


_TUNED = Struck(pauses={"quaestor.runtime.services._TUNED_EVERY_S": QUICKLY_S}, stir=publish)
_SKETCH = Struck(pauses={"quaestor.read_path.sketch_watching.EVERY_S": QUICKLY_S})
_DASHBOARD = Struck(
    dashboard=True,
    stir=watch_dashboard,
    pauses={"quaestor.dashboard.live.EVERY_S": QUICKLY_S, "quaestor.dashboard.live.SAMPLED_EVERY_S": QUICKLY_S},
)
_JOURNAL = Struck(settings={"journal_flush_ms": 50})
_IMAGES = Struck(settings={"pre_images": "enable"}, pauses={"quaestor.capture.pre_images._LOOK_AGAIN_MS": 0})
_PLAIN = Struck()
_RESET = Struck(stir=reset)

EMBEDDED: Final[Mapping[str, Struck]] = {
    "housekeeping": _PLAIN,
    "catalog": _PLAIN,
    "unreported-writes": _PLAIN,
    "reclaim": _PLAIN,
    "invalidations": _PLAIN,
    "settling": _PLAIN,
    "sketch": _SKETCH,
    "reset": _RESET,
    "notifications": _PLAIN,
    "sender": _PLAIN,
    "ingest": _PLAIN,
    "cell": _PLAIN,
    "stage": _PLAIN,
    "contributors": _PLAIN,
    "subscriptions": _PLAIN,
    "journal": _JOURNAL,
    "watching": Struck(pauses={"quaestor.runtime.watching._LOOK_EVERY_S": QUICKLY_S}),
    "pre-images": _IMAGES,
    "tuning": _TUNED,
    "trace": Struck(
        settings={"trace_file": "{folder}/trace"}, pauses={"quaestor.runtime.services._HOUSEKEEPING_EVERY_S": QUICKLY_S}
    ),
    "manual-invalidation": Struck(pauses={"quaestor.invalidation.effects.manual.AGAIN_AFTER_S": QUICKLY_S}),
    "continuous": Struck(
        settings={"continuous_folder": "{folder}/tables", "delivery_folder": "{folder}"},
        pauses={"quaestor.continuous.hosting._AGAIN_S": QUICKLY_S, "quaestor.continuous.hosting._LOOK_S": QUICKLY_S},
        stir=stand,
    ),
    "channels": Struck(
        settings={
            "continuous_folder": "{folder}/tables",
            "webhook_networks": ["127.0.0.0/8"],
            "delivery_attempts": 1,
        },
        pauses={
            "quaestor.channels.hosting._AGAIN_S": QUICKLY_S,
            "quaestor.channels.hosting._LOOK_S": QUICKLY_S,
            "quaestor.runtime.channels._LOOK_S": QUICKLY_S,
        },
        stir=subscribe,
    ),
    "dashboard": _DASHBOARD,
    "dashboard-samples": _DASHBOARD,
}
"""Everything in one process, on the event layer in its memory."""

ON_REDIS: Final[Mapping[str, Struck]] = {
    "election": _PLAIN,
    "measuring": Struck(pauses={"quaestor.store.size_metrics.EVERY_S": QUICKLY_S}),
    "accounting": Struck(pauses={"quaestor.store.budget_reports.EVERY_S": QUICKLY_S}),
    "notifications": _PLAIN,
    "sender": _PLAIN,
    "invalidations": _PLAIN,
    "settling": _PLAIN,
    "reclaim": _PLAIN,
    "reset": _RESET,
    "ingest": _PLAIN,
    "cell": _PLAIN,
    "stage": _PLAIN,
    "contributors": _PLAIN,
    "subscriptions": _PLAIN,
    "journal": _JOURNAL,
    "sketch": _SKETCH,
    "tuning": _TUNED,
    "dashboard-reports": _DASHBOARD,
}
"""The same process on a Redis, where it is elected to run the grid."""

BEFORE_A_CDN: Final[Mapping[str, Struck]] = {
    "purges-varnish": Struck(settle_s=60.0),  # a purge that was taken comes back when its lease is over
    "purge-watch-varnish": _PLAIN,
    "purge-probes": Struck(settings={"cdn_addresses": ["varnish={varnish}"], "cdn_canary_ms": 1_000}),
}
"""With a Varnish that is purged."""

IN_GRIDS: Final = ("task-", "grid-watch", "run-watch")
"""In the processes of a grid."""

ELSEWHERE: Final[Mapping[str, str]] = {
    "filling": "runs where collections fill tables: tests/versioned kills such processes between their steps",
    "live": "runs while a client follows a live page, and no client of this site does: tests/live has such sites",
    "spark-": "waits for a job of Spark, which restarts its tasks: tests/recovery/test_spark_grid.py kills them",
}
"""Services that no test strikes, and the reason."""


def covered() -> set[str]:
    """Names of all services of the table, without the names of CDNs."""
    struck = {*EMBEDDED, *ON_REDIS, *(name.removesuffix("varnish") for name in BEFORE_A_CDN)}
    return struck | set(IN_GRIDS) | set(ELSEWHERE)
