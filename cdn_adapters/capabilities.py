"""Capabilities of a place, as data: the kinds of its purges, their requests, their pace, and when a purge is effective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from enum import StrEnum
from types import MappingProxyType
from typing import Final

TAG: Final = "tag"
URL: Final = "url"
PREFIX: Final = "prefix"
EVERYTHING: Final = "everything"
"""Kinds of purge: values of Target.by."""
KINDS: Final = (TAG, URL, PREFIX, EVERYTHING)

UNBOUNDED: Final = 1 << 30
"""Number that stands for no limit."""


class Owner(StrEnum):
    """Owners of a provider's token bucket: all users of a bucket are limited together."""

    ACCOUNT = "account"
    ZONE = "zone"
    """One zone, service, distribution or site."""
    PLACE = "place"
    """One server."""


class Unit(StrEnum):
    """Units that one token of a bucket pays for."""

    REQUEST = "request"
    TARGET = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Token bucket that a provider keeps for an account, a zone or a server.

    bucket: its name, without a secret, e.g. "cloudflare/account/3f2a"; equal names are one bucket for all processes.
    owner: its owner.
    per_s: tokens that come back in a second.
    burst: tokens that the bucket holds.
    unit: what one token pays for.
    kinds: kinds of purge that take from the bucket.
    """

    bucket: str
    owner: Owner
    per_s: float
    burst: float
    unit: Unit = Unit.REQUEST
    kinds: tuple[str, ...] = KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class TagField:
    """Response field that carries an answer's tags to a place.

    name: lower case.
    separator: between two tags.
    budget_bytes: of the whole value; a provider ignores or refuses longer values.
    max_tags: of one answer.
    max_tag_bytes: of one tag.
    case_sensitive: whether `A` and `a` are two tags.
    """

    name: str
    separator: str = " "
    budget_bytes: int = 8_000
    max_tags: int = UNBOUNDED
    max_tag_bytes: int = 1_024
    case_sensitive: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LifetimeField:
    """Response field that carries an answer's lifetime to a place that does not know CDN-Cache-Control.

    name: lower case.
    form: template of the value. {lives_s} is the lifetime in seconds, counted from an Age of 0.
        {until_s} is its end in seconds since the epoch; {until_date} is its end as an HTTP date.
    """

    name: str
    form: str

    def header(self, *, lives_s: int, until_s: int) -> tuple[bytes, bytes]:
        """Return the field for one lifetime."""
        until_date = formatdate(until_s, usegmt=True)
        value = self.form.format(lives_s=lives_s, until_s=until_s, until_date=until_date)
        return self.name.encode("ascii"), value.encode("ascii")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Price of purges.

    free_a_month: targets that cost nothing.
    usd_a_target: price of each further target.
    account: name of the bill that places share; empty: the place alone.
    """

    free_a_month: int
    usd_a_target: float
    account: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Capabilities of a place.

    kinds: kinds of purge, the cheapest first: the first kind that can express a purge is used.
    batch: targets of one request, by kind; 1 for a kind that is not named.
    batch_bytes: of all targets of one request together, with one byte between two.
    soft: whether the place can expire instead of remove; done only on request.
    tag_field: None: the place knows no tags.
    lifetime_field: None: CDN-Cache-Control carries the lifetime.
    rates: token buckets; a purge takes from each bucket that names its kind. Empty: the place is not limited. Every process then
        sends its own purges, several requests at a time, instead of one process for all.
    asynchronous: whether a purge is only accepted at first, and its completion is polled.
    open_targets: targets that may be accepted and not completed yet.
    effective_within_ms: bound from the acknowledgement (of an asynchronous place, from the acceptance) until no copy is
        served; 0: effective when acknowledged.
    tiered: whether one of its caches fills another, so a purge is repeated after effective_within_ms.
    url_ignores_query: whether a purge by URL removes every query string of it, so that one target stands for all.
    url_ignores_case: whether the place compares paths without case.
    cost: None: purges are free.
    """

    kinds: tuple[str, ...]
    batch: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    batch_bytes: int = UNBOUNDED
    soft: bool = False
    tag_field: TagField | None = None
    lifetime_field: LifetimeField | None = None
    rates: tuple[Rate, ...] = ()
    asynchronous: bool = False
    open_targets: int = UNBOUNDED
    effective_within_ms: int = 0
    tiered: bool = False
    url_ignores_query: bool = False
    url_ignores_case: bool = False
    cost: Cost | None = None

    def batch_of(self, kind: str) -> int:
        """Return the number of targets of this kind that one request may carry."""
        return self.batch.get(kind, 1)

    @property
    def gathers(self) -> bool:
        """Whether purges that wait for each other cost fewer requests."""
        return any(self.batch_of(kind) > 1 for kind in self.kinds)

    def rates_of(self, kind: str) -> tuple[Rate, ...]:
        """Return the buckets that a purge of this kind takes from."""
        return tuple(rate for rate in self.rates if kind in rate.kinds)
