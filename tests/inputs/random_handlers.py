"""Random handlers, the requests for them and what happens in between, as Hypothesis draws them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Depends, FastAPI
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response

from tests.inputs.random_inputs import LETTERS, UNSEEN, VALUES, WAYS, Input, Records, Run, Said, Scope

Filter = dict[str, Any]
RECORDS = 24
JUMPS = {
    "a second": 1, "half a minute": 30, "a minute": 60, "five minutes": 300, "a quarter of an hour": 900, "an hour": 3600,
    "a day": 86_400,
}  # fmt: skip
"""Units whose next beginning time jumps to, in seconds."""
SOON_MS = (-20, 3, 700)
"""How long after it, or before."""


# The use of a handler's inputs


async def _found(records: Records, where: Filter, session: Any) -> Any:
    return [[record["_id"], record["n"]] for record in await records.find(where, session=session).sort("_id").to_list()]


async def _unsorted(records: Records, where: Filter, session: Any) -> Any:
    return [record["_id"] for record in await records.find(where, session=session).to_list()]


async def _projected(records: Records, where: Filter, session: Any) -> Any:
    return [record["b"] for record in await records.find(where, {"b": 1}, session=session).to_list()]


async def _any(records: Records, where: Filter, session: Any) -> Any:
    record = await records.find_one(where, session=session)
    return record and [record["_id"], record["n"]]


async def _limited(records: Records, where: Filter, session: Any) -> Any:
    return [record["_id"] for record in await records.find(where, session=session).limit(2).to_list()]


async def _tied(records: Records, where: Filter, session: Any) -> Any:
    return [record["_id"] for record in await records.find(where, session=session).sort("n", -1).limit(3).to_list()]


async def _pushed(records: Records, where: Filter, session: Any) -> Any:
    stages = [{"$match": where}, {"$group": {"_id": "$a", "ids": {"$push": "$_id"}}}, {"$sort": {"_id": 1}}]
    return await (await records.aggregate(stages, session=session)).to_list()


async def _first(records: Records, where: Filter, session: Any) -> Any:
    group = {"$group": {"_id": "$b", "first": {"$first": "$_id"}, "count": {"$sum": 1}}}
    stages = [{"$match": where}, {"$sort": {"n": 1}}, group, {"$sort": {"_id": 1}}]
    return await (await records.aggregate(stages, session=session)).to_list()


async def _counted(records: Records, where: Filter, session: Any) -> Any:
    return await records.count_documents(where, session=session)


async def _distinct(records: Records, where: Filter, session: Any) -> Any:
    return sorted(await records.distinct("n", where, session=session))


QUERIES: dict[str, Callable[[Records, Filter, Any], Awaitable[Any]]] = {
    "find": _found, "find without an order": _unsorted, "projection": _projected, "find_one": _any, "limit": _limited,
    "ties": _tied, "$push": _pushed, "$first": _first, "count": _counted, "distinct": _distinct,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Handler:
    """A handler: it reads its inputs, and with them the records.

    shows: what they said is in its answer, too.
    """

    inputs: tuple[Input, ...]
    query: str
    shows: bool = True

    @property
    def looks_at_clock(self) -> bool:
        return any(input_.is_clock for input_ in self.inputs)

    @property
    def reads_unseen(self) -> bool:
        return any(input_.way in UNSEEN for input_ in self.inputs)

    async def answer(self, run: Run, records: Records) -> Any:
        """The body."""
        values = [await input_.read(run, position) for position, input_ in enumerate(self.inputs)]
        clauses = [input_.clause(value, n) for n, (input_, value) in enumerate(zip(self.inputs, values, strict=True))]
        result = await QUERIES[self.query](records, {"$and": clauses}, run.session)
        return [result, [str(value) for value in values]] if self.shows else [result]


MakeRun = Callable[[Request, Mapping[int, Any]], Run]


def add(app: FastAPI, path: str, handler: Handler, records: Records, run: MakeRun) -> None:
    """Serve a handler; the last segment of the path is its parameter."""

    async def endpoint(request: Request, **given: Any) -> Response:
        body = await handler.answer(run(request, {int(name[1:]): value for name, value in given.items()}), records)
        return Response(json.dumps(body), media_type="application/json")

    parameters = [inspect.Parameter("request", inspect.Parameter.KEYWORD_ONLY, annotation=Request)]
    for position, input_ in enumerate(handler.inputs):
        dependency = WAYS[input_.way].dependency
        if dependency is not None:
            default = Depends(dependency(input_.name))
            parameters.append(inspect.Parameter(f"i{position}", inspect.Parameter.KEYWORD_ONLY, default=default))
    endpoint.__qualname__ = path
    endpoint.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    app.add_api_route(path + "/{part}", endpoint, response_model=None)


# Requests, and the events in between


@dataclass(frozen=True, slots=True)
class Ask:
    """A request.

    handler: its number.
    values: the value of each of its inputs.
    noise: fields that no handler reads.
    """

    handler: int
    values: tuple[str, ...]
    noise: bool = False
    head: bool = False

    def scope(self, path: str, handler: Handler) -> Scope:
        """The scope, as a server makes it."""
        scope: Scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "HEAD" if self.head else "GET",
            "scheme": "http", "path": path + "/-", "query_string": b"", "root_path": "", "server": ("site", 80),
            "client": ("10.0.0.9", 1), "headers": [(b"host", b"site")],
        }  # fmt: skip
        if self.noise:
            scope["headers"] += [(b"x-noise", b"1"), (b"traceparent", b"00-1-1-00"), (b"accept", b"*/*")]
        for input_, value in zip(handler.inputs, self.values, strict=True):
            input_.put(scope, value)
        scope["raw_path"] = scope["path"].encode()
        return scope


@dataclass(frozen=True, slots=True)
class Write:
    """A write to the records. kind: insert, set, move (in time), delete, level (of the other collection), nothing."""

    kind: str
    key: int = 0
    field: str = "a"
    value: str = ""
    shift_s: int = 0


@dataclass(frozen=True, slots=True)
class Jump:
    """Time passes, until just about the beginning of the next unit."""

    unit: str
    after_ms: int


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the values that the cache cannot see."""

    said: Said


@dataclass(frozen=True, slots=True)
class Round:
    """Something happens, and some of the requests are made.

    settled: not before what happened is known to have taken effect; otherwise at the same time.
    asked: by their numbers.
    """

    happens: Write | Jump | Change | None
    settled: bool
    asked: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Story:
    """Some handlers, requests for them, and rounds of these. indexed: of which collection. minute: of the day when it begins."""

    handlers: tuple[Handler, ...]
    asks: tuple[Ask, ...]
    rounds: tuple[Round, ...]
    indexed: bool = False
    minute: int = 0


def inputs(ways: tuple[str, ...]) -> st.SearchStrategy[Input]:
    """One input that comes in one of these ways."""
    return st.sampled_from(ways).flatmap(
        lambda way: st.builds(Input, st.just(way), st.sampled_from(WAYS[way].names), st.booleans())
    )


def handlers(ways: tuple[str, ...], *, first: tuple[str, ...] = ()) -> st.SearchStrategy[Handler]:
    """A handler of one to three inputs. first: the ways of the first, if they are others; it is shown then."""
    rest = st.lists(inputs(ways), max_size=len(LETTERS) - 1)
    together = st.tuples(inputs(first or ways), rest).map(lambda both: (both[0], *both[1]))
    return st.builds(Handler, together, st.sampled_from(tuple(QUERIES)), st.just(True) if first else st.booleans())


_keys = st.integers(0, RECORDS - 1)
_values = st.sampled_from(VALUES)
_writes = st.one_of(
    st.builds(Write, st.just("set"), _keys, st.sampled_from("abcn"), _values),
    st.builds(Write, st.just("move"), _keys, shift_s=st.sampled_from((-90_000, -4000, -3590, -20, 20, 4000))),
    st.builds(Write, st.just("insert"), st.integers(RECORDS, RECORDS + 3), value=_values),
    st.builds(Write, st.just("delete"), st.integers(0, RECORDS + 3)),
    st.builds(Write, st.just("level"), value=_values),
    st.builds(Write, st.just("nothing"), _keys),
)
_jumps = st.builds(Jump, st.sampled_from(tuple(JUMPS)), st.sampled_from(SOON_MS))
_others = st.sampled_from(("", "2", "3"))
_changes = st.builds(Change, st.builds(Said, _others, _others))


@st.composite
def stories(draw: st.DrawFn, ways: tuple[str, ...], *, jumps: bool = True, unseen: bool = False) -> Story:
    """Handlers that read inputs that come in these ways.

    jumps: time is moved. unseen: the first handler reads what nobody can see, and that changes when its answer is known.
    """
    served = tuple(draw(st.lists(handlers(ways), min_size=0 if unseen else 1, max_size=1 if unseen else 3)))
    if unseen:
        served = (draw(handlers(ways, first=tuple(UNSEEN))), *served)
    asks = []
    for position in range(draw(st.integers(2, 6))):
        first = unseen and position == 0
        number = 0 if first else draw(st.integers(0, len(served) - 1))
        values = tuple(draw(_values) for _ in served[number].inputs)
        head = not first and draw(st.integers(0, 9)) == 9
        asks.append(Ask(number, values, noise=draw(st.booleans()), head=head))
    happens = st.one_of(*([_changes] if unseen else []), st.none(), _writes, *([_jumps] if jumps else []))
    requested = st.lists(st.integers(0, len(asks) - 1), min_size=2, max_size=7).map(tuple)
    rounds = draw(
        st.lists(st.builds(Round, happens, st.sampled_from((True, True, False)), requested), min_size=2, max_size=6)
    )
    if unseen:
        rounds = [Round(None, True, (0, 0)), Round(draw(_changes), True, (0, 0)), *rounds]
    return Story(served, tuple(asks), tuple(rounds), draw(st.booleans()), draw(st.integers(0, 1439)))


@st.composite
def pointed_stories(draw: st.DrawFn, ways: tuple[str, ...], happens: type[Write] | type[Jump] | None) -> Story:
    """One handler of one input, two requests for it, each made again and again, and nothing else in between than this."""
    served = draw(
        st.builds(
            Handler, inputs(ways).map(lambda single: (single,)), st.sampled_from(("find", "count")), st.just(True)
        )
    )
    asks = tuple(Ask(0, (value,)) for value in draw(st.permutations(VALUES))[:2])
    between = _writes if happens is Write else _jumps if happens is Jump else st.none()
    rounds = st.lists(st.builds(Round, between, st.just(True), st.just((0, 1, 0, 1))), min_size=5, max_size=5)
    return Story((served,), asks, tuple(draw(rounds)), draw(st.booleans()), draw(st.integers(0, 1439)))
