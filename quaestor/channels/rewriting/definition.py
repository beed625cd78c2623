"""Definition of a channel, and the shapes of the datasets that it reads."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from quaestor.channels.statements.model import Priority
from quaestor.tables.schema import Schema, Type


class Kind(StrEnum):
    """Kind of a channel: a function evaluated again each period, or a query of what is new."""

    REPETITIVE = "repetitive"
    CONTINUOUS = "continuous"


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of a channel. type: None: the type of the column that the body compares it with."""

    name: str
    type: Type | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """Columns of a dataset, and whether its records have instants of publication."""

    schema: Schema
    active: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelDefinition:
    """Channel.

    body: SELECT; of a repetitive channel, the body of its function.
    parameters: of the channel; of a repetitive channel, those of its function.
    period: as `continuous.schedule.periods.period` reads it.
    push: whether brokers get results without asking.
    distinct: whether each subscription gets an equal record once (DISTINCT, UNSEEN).
    every_instant: whether results are the rows that entered the answer at any instant between the runs.
    start: `now`, `beginning`, or an instant in ISO 8601: records after it are new to the first run.
    grouped: whether subscriptions with equal parameters at one broker share their results.
    priority: under load.
    """

    name: str
    body: str
    parameters: tuple[Parameter, ...] = ()
    kind: Kind = Kind.CONTINUOUS
    period: str = "10s"
    push: bool = False
    distinct: bool = False
    every_instant: bool = False
    start: str = "now"
    grouped: bool = True
    priority: Priority = Priority.NORMAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """Records of a dataset that a plan reads.

    name: in the plan.
    columns: visible ones.
    new_only: records new to the run; otherwise the state at the run's instant.
    versions: all versions up to the run's instant, deletions included.
    """

    name: str
    dataset: str
    columns: Schema
    new_only: bool = False
    versions: bool = False
