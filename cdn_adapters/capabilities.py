"""Capabilities of a place, as data: what it can purge, in which requests, how fast, and until when a purge is effective."""

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
"""Stands for no limit."""


class Owner(StrEnum):
    """Owners of a provider's token bucket: whatever shares it is limited together."""

    ACCOUNT = "account"
    ZONE = "zone"
    """One zone, service, distribution or site."""
    PLACE = "place"
    """One server."""


class Unit(StrEnum):
    """Units that a token of a bucket pays for."""

    REQUEST = "request"
    TARGET = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Token bucket that a provider keeps for somebody.

    bucket: its name, without a secret, e.g. "cloudflare/account/3f2a"; equal names are one bucket for all processes.
    owner: whose it is.
    per_s: tokens that come back in a second.
    burst: tokens that it holds.
    unit: what one token pays for.
    kinds: kinds of purge that take from it.
    """

    bucket: str
    owner: Owner
    per_s: float
    burst: float
    unit: Unit = Unit.REQUEST
    kinds: tuple[str, ...] = KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class TagField:
    """Response field that tells a place the tags of an answer.

    name: lower case.
    separator: between two tags.
    budget_bytes: of the whole value; a provider ignores or refuses what is longer.
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
    """Response field that tells a place how long it may keep an answer, for one that does not know CDN-Cache-Control.

    name: lower case.
    form: its value, with {lives_s}, the lifetime counted from when the answer's Age was 0, or its end: {until_s}, in seconds
        since the epoch, or {until_date}, as an HTTP date.
    """

    name: str
    form: str

    def header(self, *, lives_s: int, until_s: int) -> tuple[bytes, bytes]:
        """The field for one lifetime."""
        until_date = formatdate(until_s, usegmt=True)
        value = self.form.format(lives_s=lives_s, until_s=until_s, until_date=until_date)
        return self.name.encode("ascii"), value.encode("ascii")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Price of purges.

    free_a_month: targets that cost nothing.
    usd_a_target: price of each one after them.
    account: what is billed together; empty: the place alone.
    """

    free_a_month: int
    usd_a_target: float
    account: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Capabilities of a place.

    kinds: kinds of purge that it has, the cheapest first: the first one that can express a purge is used.
    batch: targets of one request, by kind; 1 where it is not named.
    batch_bytes: of all targets of one request together, with one byte between two.
    soft: whether it can expire instead of remove; done only on request.
    tag_field: None: it knows no tags.
    lifetime_field: None: CDN-Cache-Control tells it.
    rates: its token buckets; a purge takes from each that names its kind. None: it is not limited, and every process sends
        its own purges instead of one for all, several requests at a time.
    asynchronous: whether a purge is only accepted at first, and its completion is to be asked for.
    open_targets: targets that may be accepted and not completed yet.
    effective_within_ms: bound from the acknowledgement (of an asynchronous place, from the acceptance) until no copy is
        served; 0: effective when acknowledged.
    tiered: whether one of its caches fills another, so a purge is repeated after effective_within_ms.
    url_ignores_query: whether a purge by URL removes it with every query string, so that one target stands for all.
    url_ignores_case: whether it compares paths without case.
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
        """Targets of this kind that one request may carry."""
        return self.batch.get(kind, 1)

    @property
    def gathers(self) -> bool:
        """Whether purges that wait for each other cost fewer requests."""
        return any(self.batch_of(kind) > 1 for kind in self.kinds)

    def rates_of(self, kind: str) -> tuple[Rate, ...]:
        """Buckets that a purge of this kind takes from."""
        return tuple(rate for rate in self.rates if kind in rate.kinds)
