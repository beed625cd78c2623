"""The policy of a route: who may share its answers, what their key is made of, how long which copy lives.

The middleware reads it from the route (see `quaestor.middleware.routes`) before the handler runs, and keeps it per path. A field
left open is None: the settings and the estimator decide. A policy only restricts, except for `sharing`. A request with
credentials is answered from cache if, and only if, its route declares with whom its answers are shared.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import bson
from bson.errors import BSONError

from quaestor.errors import ConfigurationError
from quaestor.model import Document


class Sharing(StrEnum):
    """The group of people who may be given the same answer."""

    UNDECLARED = "undeclared"
    """Everybody who asks without credentials; nobody else."""
    PUBLIC = "public"
    """Everybody, with or without credentials: the answer does not depend on them."""
    PER_USER = "per-user"
    """Requests for which `by` gives the same text. Never a shared cache outside (CDN): `private`."""
    PER_ROLE = "per-role"
    """The same, for a group of users."""
    PRIVATE = "private"
    """Nobody: not stored."""


class Representation(StrEnum):
    """The form in which a list is kept."""

    AUTO = "auto"
    OBJECTS = "objects"
    IDS = "ids"
    MAINTAINED = "maintained"
    """Whole, and made anew from the result that the grid keeps up to date, not from the database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """The way in which clients follow the answers of a route at its own URL (docs/live.md).

    patch: an EventSource receives a JSON Patch where that is shorter than the whole body. A client that sends
        `Accept: text/event-stream; patch=json` receives patches anyway.
    poll: seconds between two runs of the handler for an answer that cannot be stored; None: its stream ends with the reason.
    valid_until: called with the ASGI scope of a stream at its start; returns the end of the client's credentials in seconds
        since 1970, or None.

    Raises ConfigurationError for a wrong value.
    """

    patch: bool = False
    poll: float | None = None
    valid_until: Callable[[Mapping[str, Any]], float | None] | None = None

    def __post_init__(self) -> None:
        if self.poll is not None and (isinstance(self.poll, bool) or not SHORTEST_POLL_S <= self.poll < math.inf):
            raise ConfigurationError(f"Live(poll={self.poll!r}): give seconds, at least {SHORTEST_POLL_S}, or None")
        if self.valid_until is not None and not callable(self.valid_until):
            raise ConfigurationError(
                f"Live(valid_until={self.valid_until!r}): give a function of the ASGI scope that returns seconds since 1970"
            )


SHORTEST_POLL_S = 0.1


def as_live(declared: bool | Live) -> Live | Literal[False]:
    """The declaration behind an argument `live`. Raises ConfigurationError for anything else."""
    if isinstance(declared, Live):
        return declared
    if not isinstance(declared, bool):
        raise ConfigurationError(f"live={declared!r} is neither True nor False nor Live(...)")
    return Live() if declared else False


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutePolicy:
    """The policy of one route; what it leaves open is decided by the settings and the estimator.

    sharing: with whom its answers are shared.
    implied: the scope is concluded from the route, not declared. Credentials that a handler reads then count like any other
    field.
    by: called with the ASGI scope on every request of a per-user or per-role route; returns the user whom the request is for, or
        None: then the cache keeps out. `by` must verify the fields that it reads (a signature, a session). A client that can
        forge the name of a user receives the answers of that user.
    reads: names of the request fields that `by` reads, in lower case; None: unknown. `Vary` names them.
    ttl_ms: at most so long in our own store.
    cdn_ttl_ms: in CDNs that are purged.
    browser_ttl_ms: in browsers.
    stale_while_revalidate_ms, stale_if_error_ms: RFC 5861; for answers that outlived their lifetime, never for ones
        that a write has invalidated.
    tags: to invalidate by, besides the answer's own.
    groups: RFC 9875 cache groups.
    sketch_partition: the group whose filter of the Cache Sketch tells of its answers; empty: the setting decides.
    depends_on: further (namespace, filter) that the answer depends on.
    headers, cookies: request fields that are part of the key; headers are also added to `Vary`, cookies as `Cookie`.
    query: the query parameters that are part of the key; None: all but the tracking ones. The handler does not see
        the others.
    declared_query: the parameters that the route is known to read: part of the key in any case, tracking or not.
    tracking: whether tracking parameters (see `read_path.query`) are left out of the key.
    sort_query: the order of query parameters does not matter, except among those of one name: the handler is shown them
        by name; None: the setting decides.
    keyed_body: POST and QUERY requests are answered from cache, keyed by their body.
    bypass: neither look up nor store.
    live: how its answers are followed; False: not at all; None: the middleware decides.
    explicit: the route has a declaration. Its answers can be invalidated by URL. An explicit ttl, tag or dependency suffices to
    keep an answer that read nothing from the database.
    personal: an answer is for some only: `private` outside, its key carries whom it is for.
    vary_known: `Vary` can name the fields that decide for whom an answer is. If not, no client keeps the answer.
    closed: nothing is looked up or stored.
    """

    sharing: Sharing = Sharing.UNDECLARED
    implied: bool = False
    by: Callable[[Mapping[str, Any]], str | None] | None = None
    reads: tuple[bytes, ...] | None = None
    ttl_ms: int | None = None
    cdn_ttl_ms: int | None = None
    browser_ttl_ms: int | None = None
    stale_while_revalidate_ms: int = 0
    stale_if_error_ms: int = 0
    tags: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    sketch_partition: str = ""
    representation: Representation = Representation.AUTO
    depends_on: tuple[tuple[str, Document], ...] = ()
    headers: tuple[bytes, ...] = ()
    cookies: tuple[str, ...] = ()
    query: frozenset[str] | None = None
    declared_query: frozenset[str] = frozenset()
    tracking: bool = True
    sort_query: bool | None = None
    keyed_body: bool = False
    bypass: bool = False
    live: Live | Literal[False] | None = None
    explicit: bool = False
    personal: bool = field(init=False, repr=False, compare=False)
    vary_known: bool = field(init=False, repr=False, compare=False)
    closed: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Every step of a request asks these: they are worked out once per policy.
        object.__setattr__(self, "personal", self.sharing in (Sharing.PER_USER, Sharing.PER_ROLE))
        object.__setattr__(self, "vary_known", not self.personal or self.reads is not None)
        object.__setattr__(self, "closed", self.bypass or self.sharing is Sharing.PRIVATE)


def fingerprint(policy: RoutePolicy) -> bytes:
    """A digest of what a declaration says about whom an answer is for, by what it dies and where copies of it are looked up;
    empty if it says nothing of the kind.

    Part of the key: the next release may tag a route, or no longer call it public. Its processes must not serve entries that the
    last release stored; `by` counts by its name and by the fields that it reads. The same in every process
    that runs the same code.
    """
    said = policy.tags or policy.groups or policy.depends_on or policy.sketch_partition
    if policy.sharing is Sharing.UNDECLARED and not said:
        return b""
    by = "" if policy.by is None else getattr(policy.by, "__qualname__", type(policy.by).__qualname__)
    sharing = policy.sharing.value + ("?" if policy.implied else "")
    reads = b",".join(policy.reads or ()).decode("latin-1")
    parts = [sharing, by, reads, *policy.tags, "", *policy.groups, "", *(where for where, _ in policy.depends_on)]
    hashed = hashlib.blake2b("\n".join(parts).encode("utf-8", "surrogatepass"), digest_size=8)
    for _, selected in policy.depends_on:
        try:
            hashed.update(bson.encode(dict(selected)))
        except (BSONError, OverflowError, TypeError):  # refused when it is registered
            hashed.update(b"?")
    if policy.sketch_partition:
        hashed.update(f"#{policy.sketch_partition}".encode())
    return hashed.digest()


REPRESENTATION = "quaestor.representation"
"""Where in the ASGI scope a handler finds its route's representation, if the route or a rule for its path names one."""

DEFAULT = RoutePolicy()
"""Of routes that say nothing."""
