"""The failures that are tried out on a whole deployment under load: what is broken, and what the documents say of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """what: done to the deployment. then: what happens. seen: metric or events by which it is noticed."""

    what: str
    then: str
    seen: str


FAILURES: dict[str, Failure] = {
    "cell-killed": Failure(
        what="a matching cell's process is killed",
        then="Spark starts that task again; it goes on from its checkpoint. The other cells do not notice",
        seen="`quaestor_column_lag_ms`",
    ),
    "cell-killed-often": Failure(
        what="one cell's process is killed 25 times in a row",
        then="as often it is started again; the other cells do not notice, and the other column's queries are hits",
        seen="`quaestor_column_lag_ms`",
    ),
    "cell-paused": Failure(
        what="a matching cell stands still, then goes on",
        then="what its query partition guards is answered by the handlers until it has caught up; all else by the cache",
        seen="`registry.column_lags`",
    ),
    "ingest-killed": Failure(
        what="the ingest process is killed",
        then="Spark starts that task again; it resumes the change stream where it was",
        seen="`quaestor_serving`",
    ),
    "executor-killed": Failure(
        what="a Spark executor is killed, with every task in it",
        then="Spark starts another one; its tasks go on from their checkpoints. The other executor's do not notice",
        seen="`quaestor_serving`",
    ),
    "driver-killed": Failure(
        what="the Spark driver is killed, and its supervisor starts it again",
        then="its executors end; everything bypasses until the new grid has taken over from the checkpoints",
        seen="`quaestor_serving`",
    ),
    "driver-paused": Failure(
        what="the driver falls silent (no word between driver and executors)",
        then="the tasks go on without it",
        seen="nothing",
    ),
    "executor-paused": Failure(
        what="an executor and its tasks stand still, then go on",
        then="its cells are older than the bound: bypass; afterwards they read on where they were",
        seen="`quaestor_serving`",
    ),
    "app-killed": Failure(
        what="an app worker is killed and started again",
        then="the other one takes over its claims; the new one knows the dead from the notifications it reads again",
        seen="`effects.reclaim_failed` if that fails",
    ),
    "redis-restarted": Failure(
        what="Redis is killed and comes back with its data",
        then="bypass meanwhile; everybody reads on where he was",
        seen="`registry.read_failed`, `cell.event_layer_failed`, `ingest.append_failed`",
    ),
    "redis-emptied": Failure(
        what="Redis is killed and comes back without its data",
        then="every cached response is dropped, the sketch saturated, the grid starts anew",
        seen="`registry.event_layer_reset`, `cell.event_layer_reset`, `ingest.event_layer_reset`, `sketch.state_lost`",
    ),
    "redis-stalled": Failure(
        what="Redis stops answering without a word",
        then="bypass after the bound; everybody reads on where he was",
        seen="`registry.read_failed`, `read_path.lookup_failed`",
    ),
    "mongod-restarted": Failure(
        what="mongod is killed and started again",
        then="requests that need it fail meanwhile; every cached response is dropped; the change stream is resumed",
        seen="`ingest.stream_failed`, `ingest.primary_changed`",
    ),
    "mongod-stalled": Failure(
        what="mongod stops answering without a word",
        then="requests that need it wait or fail, and bypass after the bound; the change stream goes on",
        seen="`ingest.stream_failed`",
    ),
    "mongod-failed-over": Failure(
        what="the primary of three mongods is killed",
        then="another one is elected; every cached response is dropped; the change stream is resumed there",
        seen="`ingest.primary_changed`",
    ),
    "mongod-stepped-down": Failure(
        what="the primary of three mongods steps down",
        then="another one is elected; every cached response is dropped; the change stream is resumed there",
        seen="`ingest.primary_changed`",
    ),
    "app-redis-stalled": Failure(
        what="between app workers and Redis nothing comes through",
        then="bypass after the bound: every request is answered by its handler",
        seen="`registry.read_failed`, `read_path.lookup_failed`",
    ),
    "app-redis-reset": Failure(
        what="connections between app workers and Redis are reset, new ones too",
        then="bypass after the bound: every request is answered by its handler",
        seen="`registry.read_failed`, `read_path.lookup_failed`",
    ),
    "app-redis-lost": Failure(
        what="connections between app workers and Redis are dead without a word; new ones work",
        then="they are given up after 5 s (event layer) or 1 s (store); bypass after the bound",
        seen="`registry.read_failed`, `read_path.lookup_failed`",
    ),
    "app-mongo-stalled": Failure(
        what="between app workers and mongod nothing comes through",
        then="hits go on, and are right; what needs the database waits or fails as without a cache",
        seen="the app's own errors",
    ),
    "app-mongo-reset": Failure(
        what="connections between app workers and mongod are reset, new ones too",
        then="hits go on, and are right; what needs the database fails as without a cache",
        seen="the app's own errors",
    ),
    "app-mongo-lost": Failure(
        what="connections between app workers and mongod are dead without a word; new ones work",
        then="hits go on, and are right; the driver gives the dead connections up",
        seen="the app's own errors",
    ),
    "grid-redis-stalled": Failure(
        what="between the grid and Redis nothing comes through",
        then="bypass after the bound; the grid reads on where it was",
        seen="`cell.event_layer_failed`, `ingest.append_failed`",
    ),
    "grid-redis-reset": Failure(
        what="connections between the grid and Redis are reset, new ones too",
        then="bypass after the bound; the grid reads on where it was",
        seen="`cell.event_layer_failed`, `ingest.append_failed`",
    ),
    "grid-redis-lost": Failure(
        what="connections between the grid and Redis are dead without a word; new ones work",
        then="they are given up after 5 s; bypass after the bound; the grid reads on where it was",
        seen="`cell.event_layer_failed`, `ingest.append_failed`",
    ),
    "ingest-mongo-stalled": Failure(
        what="between the grid (ingest, stages) and mongod nothing comes through",
        then="no ticks: bypass after the bound; the change stream goes on",
        seen="`ingest.stream_failed`",
    ),
    "ingest-mongo-reset": Failure(
        what="connections between the grid and mongod are reset, new ones too",
        then="no ticks: bypass after the bound; the change stream is resumed",
        seen="`ingest.stream_failed`",
    ),
    "ingest-mongo-lost": Failure(
        what="connections between the grid and mongod are dead without a word; new ones work",
        then="bypass after the bound; the driver gives the dead connection up after 20 to 30 s, the stream is resumed",
        seen="`ingest.stream_failed`",
    ),
}  # fmt: skip
