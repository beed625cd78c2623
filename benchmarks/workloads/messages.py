"""Messages of a discussion system, as in the paper on continuous queries (section 6.2.1), made from a seed.

380,000 messages are a year; larger sets are longer, with equally many messages an hour. 55 % are replies. The delay of a reply is
log-normal with a median of 10 hours, and 95 % of replies are in their parent's group. Groups follow Zipf's law.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from quaestor.tables.catalogue import Catalogue
from quaestor.tables.schema import Column, Schema, Type

SEED: Final = 7919
YEAR: Final = 380_000
"""Messages of a year."""
SPACING_US: Final = 365 * 86_400 * 1_000_000 // YEAR
GROUPS: Final = 1_500
REPLIES: Final = 0.55
SAME_GROUP: Final = 0.95
MEDIAN_S: Final = 36_000.0
SPREAD: Final = 1.5
"""Standard deviation of the delay's logarithm."""
BEGINNING_US: Final = 946_684_800_000_000
"""2000-01-01: instant of the first message."""
DATABASES: Final = 45
"""Rank of comp.databases, with 0.28 % of all messages."""
SYSTEMS: Final = range(60, 85)
"""Ranks of comp.sys.*, with 4 % of all messages."""
SCHEMA: Final = Schema(
    (
        Column("msgid", Type.TEXT), Column("sender", Type.TEXT), Column("subject", Type.TEXT),
        Column("newsgroup", Type.TEXT), Column("inreplyto", Type.TEXT),
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Messages:
    """Table `msgs` of a catalogue.

    count: number of messages.
    """

    catalogue: Catalogue
    count: int

    def instant(self, number: int) -> int:
        """Return an instant after so many messages."""
        return BEGINNING_US + number * SPACING_US + SPACING_US // 2


class Clock:
    """Clock of the catalogue: stands at the messages that are being written."""

    def __init__(self) -> None:
        self.now_ms = BEGINNING_US // 1_000

    def __call__(self) -> int:
        """Return milliseconds since 1970."""
        return self.now_ms


def fill(catalogue: Catalogue, clock: Clock, count: int) -> Messages:
    """Write the messages, a file at a time: the memory and the disk hold one file beside the table."""
    table = catalogue.create("msgs", SCHEMA)
    messages = Messages(catalogue, count)
    number = 0
    for rows in _files(count):
        clock.now_ms = (BEGINNING_US + (number + 1) * SPACING_US) // 1_000
        table.append(rows, steps=[step * SPACING_US for step in range(rows.num_rows)])
        number += rows.num_rows
    clock.now_ms = messages.instant(count + 1) // 1_000 + 1
    return messages


def _files(count: int) -> Iterator[Any]:
    """Yield the messages in order: files of 0.5 %, and of 0.1 % within the newest 1 %."""
    names = np.array([_group(rank) for rank in range(1, GROUPS + 1)])
    shares = 1 / np.arange(1, GROUPS + 1)
    cumulated = np.cumsum(shares / shares.sum())
    groups = np.zeros(count, np.int16)
    random = np.random.default_rng(SEED)
    start, fine = 0, count - count // 100
    while start < count:
        stop = min(start + count // 200, fine) if start < fine else min(start + max(1, count // 1_000), count)
        parents = _replies(random, groups, cumulated, start, stop)
        numbers = np.arange(start, stop)
        yield pa.table(
            {
                "msgid": pa.array([f"<{number}@host{number % 997}>" for number in numbers]),
                "sender": pa.array(
                    [f"user{number}@host{number % 997}" for number in random.integers(0, 20_000, stop - start)]
                ),
                "subject": pa.array([f"On the matter of {number % 88_001}" for number in numbers]),
                "newsgroup": pa.array(names[groups[start:stop]]),
                "inreplyto": pa.array([f"<{parent}@host{parent % 997}>" if parent >= 0 else "" for parent in parents]),
            }
        )
        start = stop


def _replies(random: Any, groups: Any, cumulated: Any, start: int, stop: int) -> Any:
    """Give messages their groups; return the number of each parent, -1: no reply."""
    size = stop - start
    numbers = np.arange(start, stop)
    delays = np.exp(random.normal(np.log(MEDIAN_S), SPREAD, size)) * 1_000_000 / SPACING_US
    parents = numbers - np.maximum(1, delays.astype(np.int64))
    parents[(random.random(size) >= REPLIES) | (parents < 0)] = -1
    groups[start:stop] = np.searchsorted(cumulated, random.random(size))
    inherits = (parents >= 0) & (random.random(size) < SAME_GROUP)
    waiting = np.flatnonzero(inherits)
    settled = ~inherits
    while waiting.size:  # a parent of the same file has its group first
        above = parents[waiting]
        ready = (above < start) | settled[np.maximum(above - start, 0)]
        groups[start + waiting[ready]] = groups[above[ready]]
        settled[waiting[ready]] = True
        waiting = waiting[~ready]
    return parents


def _group(rank: int) -> str:
    if rank == DATABASES:
        return "comp.databases"
    return f"comp.sys.machine{rank}" if rank in SYSTEMS else f"talk.topic{rank}"
