"""One request on its way through the cache, as a value that every part of an exchange receives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from quaestor.fast_init import fast_init
from quaestor.middleware.asked_whole import AskedWhole
from quaestor.middleware.followed_reads import Reading
from quaestor.middleware.headers import HeaderPolicy
from quaestor.middleware.interface import App, Receive, Scope, Send
from quaestor.middleware.never_stored import NeverStored
from quaestor.middleware.quarantines import Quarantines
from quaestor.middleware.refresh import Refreshes
from quaestor.middleware.routes import Plan, Routes
from quaestor.middleware.verification import Verifications
from quaestor.model import Dependent
from quaestor.read_path.key import Target
from quaestor.read_path.request import RequestFacts
from quaestor.read_path.service import ReadPath


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeParts:
    """Parts of one middleware that every exchange uses.

    app: the application behind the middleware.
    outgoing: makes the header fields of answers.
    purge_again: purges entries that died while they were being sent.
    asked_whole: routes whose handlers see no conditions.
    never_stored: requests whose handlers run untracked.
    """

    app: App
    read_path: ReadPath
    outgoing: HeaderPolicy
    routes: Routes
    refreshes: Refreshes
    verifications: Verifications
    quarantines: Quarantines
    purge_again: Callable[[Dependent], None] = lambda _: None
    asked_whole: AskedWhole = field(default_factory=AskedWhole)
    never_stored: NeverStored = field(default_factory=NeverStored)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeContext:
    """A request that may be answered from a cache, and everything needed to answer it.

    parts: of the middleware.
    scope, receive, send: ASGI's.
    facts: the facts in the request's header fields.
    target: the cache key and the other names of the requested resource.
    plan: the declarations of its route.
    shared_state: the state that the app's lifespan puts into every request.
    credentials: the request carries credentials; only answers that their origin allows to be shared in spite of them fit.
    """

    parts: ExchangeParts
    scope: Scope
    receive: Receive
    send: Send
    facts: RequestFacts
    target: Target
    plan: Plan
    shared_state: Mapping[str, Any] = field(default_factory=dict)
    credentials: bool = False

    @property
    def reading(self) -> Reading | None:
        """The read of followers that the answer is for; None: a client waits for the answer."""
        return self.send if isinstance(self.send, Reading) else None

    @property
    def is_head(self) -> bool:
        """Whether the answer goes out without its body."""
        return bool(self.scope["method"] == "HEAD")

    @property
    def repeatable(self) -> bool:
        """Whether the handler can run again in the background. False for requests keyed by their body: the body is gone."""
        return self.scope["method"] in ("GET", "HEAD") and not self.credentials

    @property
    def storable(self) -> bool:
        """Whether the handler's answer to this request could become an entry."""
        facts = self.facts
        return self.scope["method"] != "HEAD" and not (facts.partial or facts.no_store or facts.only_if_cached)
