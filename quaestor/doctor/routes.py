"""Routes of an application: each is asked once or twice, to find why it is or is not cached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from quaestor.doctor.diagnosis import Diagnosis, mend, ok, warn
from quaestor.doctor.hosted_app import questions, until_serving
from quaestor.errors import ConfigurationError
from quaestor.read_path.verification import Finding

if TYPE_CHECKING:
    from quaestor.middleware import QuaestorMiddleware
    from quaestor.middleware.audit import Examined

_DECIDED: Final = frozenset({"bypass", "private-route", "no-store", "private", "declared"})
"""Reasons that the application's author has declared."""
_REMEDIES: Final = {
    "no-reads": "@cached(ttl=60)  # if it may live so long; or read through a client with event_listeners=[quaestor.capture]",
    "uncaptured": "AsyncMongoClient(url, event_listeners=[quaestor.capture])  # every client that handlers use",
    "clock": "now = datetime.now(UTC).replace(second=0, microsecond=0)  # a time that stays the same for a while",
    "scope": "@cached(scope=per_user(by=...))  # by gives None for a request without a user",
    "client-address": "Quaestor(ignored_fields=('client-address',))  # if only a logger asks for it",
    "set-cookie": "@cached(scope=public())  # and set the cookie elsewhere: an answer with Set-Cookie belongs to one user",
    "wrote": "@app.post(...)  # a GET that writes is not cached",
    "diverged": "uncacheable('why')  # in the handler",
    "no-operation-time": "mongod --replSet rs0",
}


async def examined(middleware: QuaestorMiddleware, app: Any, examples: Sequence[str]) -> list[Diagnosis]:
    """Diagnoses of the GET routes: why each is cached or not. Handlers run.

    examples: paths of routes with parameters.
    """
    try:
        await until_serving(middleware)
    except ConfigurationError as error:
        return [
            mend(
                "routes",
                f"none is cached now: {error}",
                "quaestor cluster  # with REDIS_URL; else see mongod",
            )
        ]
    auditing = middleware.audit(app)
    urls, missing = questions(auditing.paths(), examples)
    diagnoses = [diagnosis for url in urls for diagnosis in judged(await auditing.examine(url))]
    diagnoses += [
        warn(f"GET {path}", "was not asked: it has parameters", f"quaestor doctor --path {path}") for path in missing
    ]
    return diagnoses or [
        warn("routes", "the framework's routes are not known: give paths to ask for", "quaestor doctor --path /")
    ]


def judged(route: Examined) -> Iterator[Diagnosis]:
    """Diagnoses of one path."""
    subject = f"GET {route.path}"
    if route.verdict is Finding.DIVERGED:
        yield mend(
            subject,
            f"two answers differ in {', '.join(route.differs)}, though no write changed what it read. An input that "
            "Quaestor cannot see decides, and the route is not cached for an hour when that is found",
            "uncacheable('why')  # in the handler; or @cached(ttl=...) and read nothing from the database",
        )
    elif route.not_covered == ("failed",):
        yield mend(subject, f"the handler fails ({route.route})", f"quaestor audit MODULE:APP --path {route.path}")
    elif route.not_covered:
        names = [reason.partition(" ")[0] for reason in route.not_covered]
        sentence = f"not cached: {'; '.join(route.not_covered)}"
        if set(names) <= _DECIDED:
            yield ok(subject, f"{sentence} (by the application's own word)")
        else:
            yield warn(subject, sentence, *dict.fromkeys(_REMEDIES[name] for name in names if name in _REMEDIES))
    else:
        yield ok(subject, f"cached: {'; '.join(route.reads) or 'it declares how long its answers live'}")
