"""Endpoints of the admin API on continuous queries: the operations of `quaestor continuous`, with the same names and answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from quaestor.admin.request import Call, Refused
from quaestor.app import Quaestor
from quaestor.observability.telemetry import Telemetry

if TYPE_CHECKING:
    from quaestor.continuous.administration import Administration

_MOST_ROWS = 10_000
_LISTS: Mapping[str, tuple[str, type[Any], type[Any]]] = {
    "sinks": ("a list of texts", str, list),
    "queries": ("a list of objects", dict, list),
}
"""Fields of a body that are lists: their description, the type of their items, and list."""


class ContinuousEndpoints:
    """Endpoints on the queries below `continuous_folder`. Without that setting each answers 400."""

    def __init__(self, quaestor: Quaestor) -> None:
        self._quaestor = quaestor

    async def queries(self, call: Call) -> Mapping[str, Any]:
        """All installed queries, or the query `name` with its progress."""
        call.only("name")
        name = call.parameter("name")
        if name is not None:
            return await self._answer(lambda administration: administration.show(name))
        return await self._answer(lambda administration: {"queries": administration.all()})

    async def results(self, call: Call) -> Mapping[str, Any]:
        """Results of the query `name`, in pages of whole runs: `after` is `next` of the page before, `limit` a number of rows."""
        call.only("name", "after", "limit")
        name, after, limit = call.required("name"), _number(call, "after", 0), _number(call, "limit", 1_000)
        if not 0 < limit <= _MOST_ROWS:
            raise Refused(400, f"limit is from 1 to {_MOST_ROWS}")
        return await self._answer(lambda administration: administration.results(name, after=after, limit=limit))

    async def dead_letters(self, call: Call) -> Mapping[str, Any]:
        """Batches of the query `name` that a sink refused for good, the oldest first."""
        call.only("name")
        name = call.required("name")
        from quaestor.continuous.overview import dead_letters

        return await self._answer(lambda administration: {"dead_letters": dead_letters(administration, name)})

    async def orders(self, call: Call) -> Mapping[str, Any]:
        """All declared orders between rows, a broken one with its first counterexample."""
        call.only()
        return await self._answer(lambda administration: {"orders": administration.orders()})

    async def change(self, call: Call) -> Mapping[str, Any]:
        """Install or change a query.

        {"do": "install", "name", "text", "every", "from", "sinks", "at_most"}; {"do": "set-text", "name", "text", "from"};
        {"do": "change", "name", "every", "sinks", "at_most"}; {"do": "pause" or "resume" or "drop", "name"};
        {"do": "install-all", "queries": objects with "name", "text", "every", "sinks", "at_most"; "from"};
        {"do": "replay" or "drop-dead-letters", "name"}: send its dead letters again, or drop them for good;
        {"do": "explain", "text"}; {"do": "run-once", "text", "at"}; {"do": "dry-run", "text", "after", "upto"};
        {"do": "declare-order" or "drop-order", "earlier": "messages.id", "later": "replies.message"}.
        """
        call.only()
        body = _texts(call.body)
        operations: Mapping[str, Callable[..., Mapping[str, Any]]] = {
            "install": _install, "set-text": _set_text, "change": _change, "dry-run": _dry_run, "pause": _pause,
            "resume": _resume, "drop": _drop, "replay": partial(_replay, self._quaestor.parts.process.telemetry),
            "install-all": _install_all, "declare-order": _declare_order, "drop-order": _drop_order,
            "drop-dead-letters": _drop_dead_letters, "explain": _explain, "run-once": _run_once,
        }  # fmt: skip
        operation = operations.get(body.pop("do", ""))
        if operation is None:
            raise Refused(400, f"do is one of {', '.join(operations)}")
        return await self._answer(partial(_called, operation, body))

    async def _answer(self, work: Callable[[Administration], Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the answer as plain JSON values."""
        return await anyio.to_thread.run_sync(self._answered, work)

    def _answered(self, work: Callable[[Administration], Mapping[str, Any]]) -> Mapping[str, Any]:
        administration = self._quaestor.parts.continuous.administration()
        from quaestor.continuous.delivery.batch import to_json

        answer: dict[str, Any] = json.loads(to_json(work(administration)))
        return answer


def _called(
    operation: Callable[..., Mapping[str, Any]], body: dict[str, Any], administration: Administration
) -> Mapping[str, Any]:
    try:
        return operation(administration, **{"start" if name == "from" else name: value for name, value in body.items()})
    except TypeError as error:
        raise Refused(400, f"a field is missing or unknown: {error}") from error


def _install(
    administration: Administration,
    *,
    name: str,
    text: str,
    every: str,
    start: str = "now",
    sinks: Any = (),
    at_most: str = "",
) -> Mapping[str, Any]:
    from quaestor.continuous.installed import InstalledQuery

    query = InstalledQuery(name=name, text=text, every=every, sinks=tuple(sinks), at_most=at_most)
    return administration.install(query, start)


def _install_all(administration: Administration, *, queries: Any, start: str = "now") -> Mapping[str, Any]:
    from quaestor.continuous.installed import queries_of

    return {"installed": len(administration.install_all(queries_of(queries), start))}


def _set_text(administration: Administration, *, name: str, text: str, start: str = "now") -> Mapping[str, Any]:
    return administration.change_text(name, text, start)


def _change(
    administration: Administration,
    *,
    name: str,
    every: str | None = None,
    sinks: Any = None,
    at_most: str | None = None,
) -> Mapping[str, Any]:
    return administration.change(name, every=every, sinks=sinks, at_most=at_most)


def _dry_run(
    administration: Administration, *, text: str, after: str = "beginning", upto: str = "now"
) -> Mapping[str, Any]:
    return {"rows": administration.dry_run(text, after, upto)}


def _pause(administration: Administration, *, name: str) -> Mapping[str, Any]:
    return administration.pause(name)


def _resume(administration: Administration, *, name: str) -> Mapping[str, Any]:
    return administration.resume(name)


def _replay(telemetry: Telemetry, administration: Administration, *, name: str) -> Mapping[str, Any]:
    from quaestor.continuous.overview import replay

    return replay(administration, name, telemetry)


def _drop(administration: Administration, *, name: str) -> Mapping[str, Any]:
    administration.drop(name)
    return {"dropped": name}


def _drop_dead_letters(administration: Administration, *, name: str) -> Mapping[str, Any]:
    return administration.drop_dead_letters(name)


def _explain(administration: Administration, *, text: str) -> Mapping[str, Any]:
    from quaestor.continuous.overview import explained

    return explained(administration, text)


def _run_once(administration: Administration, *, text: str, at: str = "now") -> Mapping[str, Any]:
    return {"rows": administration.run_once(text, at)}


def _declare_order(administration: Administration, *, earlier: str, later: str) -> Mapping[str, Any]:
    return administration.declare_order(earlier, later)


def _drop_order(administration: Administration, *, earlier: str, later: str) -> Mapping[str, Any]:
    administration.drop_order(earlier, later)
    return {"dropped": f"{earlier} {later}"}


def _number(call: Call, name: str, default: int) -> int:
    text = call.parameter(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Refused(400, f"{name} is a whole number")
    return int(text)


def _texts(body: Any) -> dict[str, Any]:
    """Return a body whose fields are texts; `sinks` is a list of texts, `queries` one of objects."""
    if not isinstance(body, dict):
        raise Refused(400, "the body is an object")
    for name, value in body.items():
        wanted, part, kind = _LISTS.get(name, ("a text", str, str))
        if not isinstance(value, kind) or not all(isinstance(item, part) for item in value):
            raise Refused(400, f"{name} is {wanted}")
    return dict(body)
