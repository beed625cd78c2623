"""Requests and their right answers: one Ask for each page and each value of its input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.setups.soaked_inputs import books
from benchmarks.setups.soaked_inputs.app import FORMS, STAFF
from benchmarks.setups.soaked_inputs.books import ADDRESSES, KINDS, ORGS, POOLS, Answer, Book, Moments
from benchmarks.setups.soaked_inputs.clock_forms import RELATIVE

FOREIGN = "foreign"
CLOCK_S = 0.003
"""The product looks at a clock of whole milliseconds."""
FIELDS = ("x-org-id", "x-shop", "accept-language", "user-agent", "anything")
Judge = Callable[[Answer], str | None]
"""The fault of an answer; None: no fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request.

    route: what it is counted under.
    cached: answers of this route are to come from the cache; otherwise the cache is to keep out, and never a hit.
    free: the database may choose among several right answers, so two of them need not be the same.
    status: of a right answer.
    by_address: what is expected of it if it comes from one of these clients.
    """

    route: str
    raw: bytes
    book: Book
    judge: Judge
    weight: float = 1.0
    cached: bool = True
    free: bool = False
    status: int = 200
    by_address: Mapping[str, Ask] = field(default_factory=dict)


class World:
    """All books and all asks. bound_s: the announced staleness bound. begun_s, for_s: when it is asked."""

    def __init__(self, *, bound_s: float, begun_s: float, for_s: float) -> None:
        weights = [2.0, 1.0, 0.5, 0.25, 0.12, 0.06, 0.03]  # a few change often, most seldom
        self.notes = {
            org: books.notes(org, weight, bound_s)
            for org, weight in zip((*ORGS, *ADDRESSES), (*weights, *([0.1] * len(ADDRESSES))), strict=True)
        }
        self.secrets = books.secrets(0.5, bound_s)
        self.pools = {name: books.pool(name, w, bound_s) for name, w in zip(POOLS, (1.0, 0.4, 0.1), strict=True)}
        self.kinds = {name: books.kind(name, w, bound_s) for name, w in zip(KINDS, (1.0, 0.4, 0.1), strict=True)}
        self.moments = Moments(begun_s, for_s, 0.5, bound_s)
        self.books: list[Book] = [
            *self.notes.values(), self.secrets, *self.pools.values(), *self.kinds.values(), self.moments.book,
        ]  # fmt: skip
        self.asks: list[Ask] = [
            *self._by_request(), *self._by_credentials(), *self._of_routers(), *self._by_clock(),
            *self._of_pools(), *self._ranked(),
        ]  # fmt: skip

    def _of(self, route: str, path: str, org: str, *fields: str, **options: object) -> Ask:
        book = self.notes[org]
        return Ask(route=route, raw=request(path, *fields), book=book, judge=_notes(org, book), **options)  # type: ignore[arg-type]

    def _by_request(self) -> Iterator[Ask]:
        for org in ORGS:
            yield self._of("query", f"/query?org={org}", org)
            yield self._of("client made at first use", f"/lazy?org={org}", org, weight=0.5)
            yield self._of("client without capture", f"/uncaptured?org={org}", org, cached=False, weight=0.3)
            noise = f"x-noise: {org}"
            for name in FIELDS:
                given = [f"{name}: {org}"] if org else []
                yield self._of(f"header field {name}", f"/header/{name}", org, *given, weight=0.7)
                yield self._of(f"header field {name}", f"/header/{name}", org, *given, noise, weight=0.3)
            given = [f"x-org-id: {org}"] if org else []
            yield self._of("header parameter", "/parameter", org, *given)
            yield self._of("copy of all fields", "/copied", org, *given)
            yield self._of("copy of all fields", "/copied", org, *given, noise)
            given = [f"cookie: other=1; theme={org}"] if org else []
            yield self._of("declared cookie", "/theme", org, *given)
            given = [f"x-outer: {org}"] if org else []
            yield self._of("scope of an outer middleware", "/outer", org, *given, cached=False, weight=0.3)

    def _by_credentials(self) -> Iterator[Ask]:
        for org in ORGS:
            session = [f"cookie: session={org}"] if org else []
            token = [f"authorization: {org}"] if org else []
            yield self._of("cookie, shared per user", "/session", org, *session)
            yield self._of("token, shared per user", "/token", org, *token)
            options = {"cached": not org, "weight": 0.4 if org else 3.0}
            yield self._of("cookie, undeclared" if org else "no cookie", "/cookie", org, *session, **options)
            yield self._of("token, undeclared" if org else "no token", "/authorization", org, *token, **options)
        by_address = {address: self._of("client's address", "/address", address, cached=False) for address in ADDRESSES}
        yield replace(by_address[ADDRESSES[0]], by_address=by_address, weight=2.0)

    def _of_routers(self) -> Iterator[Ask]:
        for key in range(len(self.secrets.ids)):
            path = f"/db/secrets/{self.secrets.ids[key]}"
            right, refused, staff = _secret(self.secrets, key), _refused, f"authorization: {STAFF}"
            other = "authorization: Bearer other"
            for route, prefix, fields, judge, status, cached in (
                ("open router", "/open", [], right, 200, True),
                ("open router", "/open", [staff], right, 200, True),
                ("router under a dependency, staff", "/staff", [staff], right, 200, False),
                ("router under a dependency, strangers", "/staff", [], refused, 401, False),
                ("router under a dependency, strangers", "/staff", [other], refused, 401, False),
                ("router behind a middleware, staff", "/guarded", [staff], right, 200, True),
                ("router behind a middleware, strangers", "/guarded", [], refused, 401, False),
                ("router behind a middleware, strangers", "/guarded", [other], refused, 401, False),
            ):
                yield Ask(
                    route=route, raw=request(prefix + path, *fields), book=self.secrets, judge=judge, status=status,
                    cached=cached, weight=0.8 if cached else 0.3,
                )  # fmt: skip

    def _by_clock(self) -> Iterator[Ask]:
        for form in range(len(FORMS)):
            floored = form >= len(RELATIVE)
            yield Ask(
                route="clock, floored to a unit" if floored else "clock, moving", raw=request(f"/clock/{form}"),
                book=self.moments.book, judge=_clock(self.moments, form, shows_value=floored), cached=floored,
                weight=0.6 if floored else 0.25,
            )  # fmt: skip

    def _of_pools(self) -> Iterator[Ask]:
        for name, book in self.pools.items():
            for route, path, count in (
                ("find_one without a sort", f"/any/{name}?", 1), ("limit without a sort", f"/some/{name}?", 3),
                ("limit within a tie", f"/tied/{name}?", 3), ("single batch", f"/batch/{name}?n=2&", 2),
                ("single batch", f"/batch/{name}?n=4&", 4),
            ):  # fmt: skip
                for again in range(2):  # the same query under another URL
                    raw = request(f"{path}again={again}")
                    yield Ask(route=route, raw=raw, book=book, judge=any_of(book, count), free=True, weight=0.7)

    def _ranked(self) -> Iterator[Ask]:
        for name, book in self.kinds.items():
            for how in ("listed", "limited", "pushed", "tied"):
                judge = _ranked(book, 2 if how == "limited" else len(book.ids))
                yield Ask(
                    route=f"order of an index, {how}", raw=request(f"/ranked/{how}/{name}"), book=book, judge=judge
                )


def request(path: str, *fields: str, method: str = "GET", body: bytes = b"") -> bytes:
    """The bytes of a request."""
    length = [f"content-length: {len(body)}", "content-type: application/json"] if body else []
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: site", *fields, *length, "", ""]).encode() + body


def _notes(org: str, book: Book) -> Judge:
    def judge(answer: Answer) -> str | None:
        if answer.body["org"] != org or any(of != org for _, of, _ in answer.body["notes"]):
            return FOREIGN
        return book.verdict(answer, {key: n for key, _, n in answer.body["notes"]})

    return judge


def _secret(book: Book, key: int) -> Judge:
    def judge(answer: Answer) -> str | None:
        if answer.body["_id"] != book.ids[key]:
            return FOREIGN
        return book.verdict(answer, {key: answer.body["n"]}, key=key)

    return judge


def _refused(answer: Answer) -> str | None:
    """The status shows that strangers are refused. Any secret in the body belongs to another user."""
    return FOREIGN if "secret" in str(answer.body) else None


def any_of(book: Book, most: int) -> Judge:
    """Accept any `most` members of the pool; fewer only if there are no more."""

    def judge(answer: Answer) -> str | None:
        shown = dict(answer.body)
        all_of_them = len(shown) < most

        def agrees(key: int, number: int) -> bool:
            if key in shown:
                return shown[key] == number and books.in_pool(key, number)
            return not all_of_them or not books.in_pool(key, number)

        if len(shown) != len(answer.body) or len(shown) > most:
            return "never"
        return book.verdict(answer, shown, agrees=agrees)

    return judge


def _ranked(book: Book, most: int) -> Judge:
    """The keys in the order that the ranks had, together, at some moment."""
    keys = range(len(book.ids))

    def judge(answer: Answer) -> str | None:
        def together(numbers: Sequence[int]) -> bool:
            return sorted(keys, key=lambda key: books.rank(key, numbers[key]))[:most] == answer.body

        return book.verdict(answer, {}, together=together)

    return judge


def _clock(moments: Moments, form: int, *, shows_value: bool) -> Judge:
    """The record that the clock chose at a moment between request and answer: how long ago is no excuse here."""

    def judge(answer: Answer) -> str | None:
        first_s, last_s = answer.asked_s - CLOCK_S, answer.answered_s + CLOCK_S
        first, last = moments.first(form, first_s), moments.first(form, last_s)
        (key, number), *_ = answer.body["moments"] or [(None, 0)]
        between = first is not None and last is not None and key is not None and first <= key <= last
        if key not in (first, last) and not between:
            return "clock"
        if shows_value and answer.body["value"] not in (moments.shown(form, first_s), moments.shown(form, last_s)):
            return "clock"
        return None if key is None else moments.book.verdict(answer, {key: number}, key=key)

    return judge
