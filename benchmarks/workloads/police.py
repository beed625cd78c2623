"""Tweets, officers, schools and subscriptions of the paper on Big Active Data, from a seed.

One tweet in ten is hateful. A third of the officers move every ten seconds. Places are uniform in a square.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, Self

import pyarrow as pa

from quaestor.channels.datasets import Dataset
from quaestor.channels.rewriting.compilation import CompiledChannel, compile_channel
from quaestor.channels.rewriting.definition import ChannelDefinition, Parameter
from quaestor.channels.runs.queries import shapes
from quaestor.channels.runs.run import create_tables
from quaestor.channels.subscriptions import Subscriptions
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.schema import Column, Schema, Type

SEED: Final = 20_220_101
HATEFUL: Final = 10
"""One of so many tweets is hateful."""
SIDE: Final = 100_000.0
RADIUS: Final = 100
"""Side of the square of places, and distance of near places, in the same unit."""
_AT_ONCE: Final = 1_000_000
_BATCH_S: Final = 0.25
_TEXT: Final = "so many words of a tweet that nobody reads to the end, because it has about a hundred characters in it "

NEAR: Final = f"near(t.location, o.location, {RADIUS})"
_OFFICERS: Final = "Tweets t, OfficerLocations o"
USE_CASES: Final = {
    "local": ("area", "SELECT t.tid, t.text FROM Tweets t WHERE is_new(t) AND t.hateful_flag AND t.area_code = area"),
    "schools": (
        "area",
        "SELECT t.tid, t.text, (SELECT list(s.name ORDER BY s.sid) FROM Schools s WHERE s.area_code = area) AS schools "
        "FROM Tweets t WHERE is_new(t) AND t.hateful_flag AND t.area_code = area",
    ),
    "nearby": (
        "oid",
        f"SELECT t.tid, t.text FROM {_OFFICERS} WHERE is_new(t) AND t.hateful_flag AND o.oid = oid AND {NEAR}",
    ),
    "unseen": (
        "oid",
        f"SELECT t.tid, t.text FROM {_OFFICERS} WHERE (is_new(t) OR is_new(o)) AND t.hateful_flag AND o.oid = oid AND {NEAR}",
    ),
    "active": (
        "oid",
        f"SELECT t.tid, t.text FROM {_OFFICERS} WHERE is_new(t) AND is_new(o) AND t.hateful_flag AND o.oid = oid AND {NEAR}",
    ),
}
"""Parameter and body of the channels of figures 39, 40, 24, 26 and 31."""

_TWEETS: Final = Schema(
    (
        Column("tid", Type.BIGINT),
        Column("area_code", Type.BIGINT),
        Column("text", Type.TEXT),
        Column("location", Type.POINT),
        Column("hateful_flag", Type.BOOL),
    ),
    ("tid",),
)
_OFFICER_LOCATIONS: Final = Schema((Column("oid", Type.BIGINT), Column("location", Type.POINT)), ("oid",))
_SCHOOLS: Final = Schema(
    (Column("sid", Type.BIGINT), Column("area_code", Type.BIGINT), Column("name", Type.TEXT)), ("sid",)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Sizes of an experiment.

    areas: number of area codes; each has equally many subscribers.
    rate: tweets a second.
    brokers: each has equally many subscribers.
    grouped: whether results belong to groups; otherwise to single subscribers.
    """

    use_case: str
    subscribers: int
    areas: int
    rate: int
    brokers: int = 10
    schools: int = 0
    grouped: bool = True

    @property
    def has_officers(self) -> bool:
        """Whether each subscriber is an officer with a place."""
        return USE_CASES[self.use_case][0] == "oid"


def fill(catalogue: Catalogue, setup: Setup) -> CompiledChannel:
    """Create datasets, channel and subscriptions; return the channel."""
    for name, schema in (("Tweets", _TWEETS), ("OfficerLocations", _OFFICER_LOCATIONS), ("Schools", _SCHOOLS)):
        Dataset.create(catalogue, name, schema)
    if setup.use_case == "schools":
        for rows in _ranges(setup.schools):
            columns = {
                "sid": pa.array(rows, pa.int64()),
                "area_code": pa.array([number % setup.areas for number in rows], pa.int64()),
                "name": pa.array([f"school number {number} of a city with a name" for number in rows], pa.string()),
            }
            Dataset.open(catalogue, "Schools").add_table(pa.table(columns))
    if setup.has_officers:
        random = Random(SEED)
        for rows in _ranges(setup.subscribers):
            places = pa.array([_place(random) for _ in rows], pa.struct([("x", pa.float64()), ("y", pa.float64())]))
            Dataset.open(catalogue, "OfficerLocations").add_table(
                pa.table({"oid": pa.array(rows, pa.int64()), "location": places})
            )
    parameter, body = USE_CASES[setup.use_case]
    definition = ChannelDefinition(name="c", body=body, parameters=(Parameter(parameter),), grouped=setup.grouped)
    channel = compile_channel(definition, shapes(catalogue))
    create_tables(catalogue, channel)
    subscriptions = Subscriptions(catalogue, "c", channel.parameters)
    for rows in _ranges(setup.subscribers):
        values = rows if setup.has_officers else [number % setup.areas for number in rows]
        # The broker changes from one round of the areas to the next, so each area has subscribers at each broker.
        round_length = 1 if setup.has_officers else setup.areas
        brokers = [f"broker{number // round_length % setup.brokers}" for number in rows]
        table = {"broker": pa.array(brokers, pa.string()), parameter: pa.array(list(values), pa.int64())}
        subscriptions.add_table(pa.table(table))
    return channel


class Ingestion:
    """Another process that writes tweets and movements at their rate, a batch every quarter of a second."""

    def __init__(self, root: Path, setup: Setup) -> None:
        context = multiprocessing.get_context("spawn")
        self._lag_s, self._batches, self._end = context.Value("d", 0.0), context.Value("q", 0), context.Event()
        arguments = (root, setup, self._lag_s, self._batches, self._end)
        self._process = context.Process(target=_ingest, args=arguments, daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._process.join()

    @property
    def lag_s(self) -> float:
        """Seconds by which the newest batch was late."""
        return float(self._lag_s.value)

    @property
    def batches(self) -> int:
        """Number of batches so far."""
        return int(self._batches.value)

    def wait_for_more(self, batches: int) -> None:
        """Return when there are more batches than so many. Raises RuntimeError if the process has ended."""
        while self.batches <= batches:
            if not self._process.is_alive():
                raise RuntimeError(f"ingestion has ended with code {self._process.exitcode}")
            time.sleep(0.01)


def tweets(setup: Setup, first: int, count: int, random: Random) -> list[dict[str, Any]]:
    """Return tweets with the numbers from `first` on, about 140 bytes each."""
    return [
        {
            "tid": tid,
            "area_code": random.randrange(setup.areas),
            "text": _TEXT,
            "location": _place(random),
            "hateful_flag": tid % HATEFUL == 0,
        }
        for tid in range(first, first + count)
    ]


def _ingest(root: Path, setup: Setup, lag_s: Any, batches: Any, end: Any) -> None:
    """Write a batch every quarter of a second, as long as the process before has not ended it."""
    catalogue, random = Catalogue(root), Random(SEED + 1)
    written, locations = Dataset.open(catalogue, "Tweets"), Dataset.open(catalogue, "OfficerLocations")
    first, due_s, carried = 0, time.monotonic(), 0.0
    while not end.is_set():
        carried += setup.rate * _BATCH_S
        written.insert(tweets(setup, first, int(carried), random))
        first, carried = first + int(carried), carried - int(carried)
        if setup.has_officers:
            moved = max(1, round(setup.subscribers / 30 * _BATCH_S))
            places = ({"oid": random.randrange(setup.subscribers), "location": _place(random)} for _ in range(moved))
            locations.upsert(places)
        due_s += _BATCH_S
        lag_s.value = max(0.0, time.monotonic() - due_s)
        batches.value += 1
        end.wait(max(0.0, due_s - time.monotonic()))


def _ranges(count: int) -> Iterator[range]:
    for start in range(0, count, _AT_ONCE):
        yield range(start, min(count, start + _AT_ONCE))


def _place(random: Random) -> dict[str, float]:
    return {"x": random.uniform(0, SIDE), "y": random.uniform(0, SIDE)}
