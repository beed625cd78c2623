"""Query parameters of a list, read strictly: an unknown or repeated name is refused.

Otherwise a mistyped `filter` would return all records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from quaestor.model import SortSpec
from quaestor.policy import Representation
from quaestor.rest.filters import EVERYTHING, Filter, parse_filter, parse_sort
from quaestor.rest.limits import Limits
from quaestor.rest.problems import Problem

PARAMETERS: Final = ("filter", "sort", "skip", "limit", "representation")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """Query of a list, from its parameters.

    sort: the requested sort, followed by `_id`, so that pages neither overlap nor leave out records; () if the
        filter orders by distance.
    representation: AUTO if none was requested.
    """

    filter: Filter
    sort: SortSpec
    skip: int
    limit: int
    representation: Representation


def parse_list(request: Request, limits: Limits) -> ListQuery:
    """Return the query in the parameters of a request. Raises Problem (400) with the parameter, the position and the reason."""
    given = given_parameters(request, PARAMETERS)
    filter_ = parse_filter(given["filter"], limits) if "filter" in given else EVERYTHING
    sort = parse_sort(given["sort"], limits) if "sort" in given else ()
    if not any(path == "_id" for path, _ in sort) and (sort or not filter_.ordered):
        sort = (*sort, ("_id", 1))
    return ListQuery(
        filter=filter_,
        sort=sort,
        skip=_number(given, "skip", default=0, least=0, most=limits.skip),
        limit=_number(given, "limit", default=limits.default_limit, least=1, most=limits.limit),
        representation=_representation(given.get("representation")),
    )


def given_parameters(request: Request, known: Sequence[str]) -> dict[str, str]:
    """Return the parameters of a request. Raises Problem (400) for a parameter that is unknown, or given twice."""
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            raise Problem(400, "parameter-unknown", f"{name!r}: known are {', '.join(known)}", parameter=name)
        if name in given:
            raise Problem(400, "parameter-twice", f"{name!r} is given twice; give it once", parameter=name)
        given[name] = value
    return given


def _number(given: dict[str, str], name: str, *, default: int, least: int, most: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and least <= int(text) <= most):
        raise Problem(400, f"{name}-out-of-range", f"an integer from {least} to {most}", parameter=name, position=0)
    return int(text)


def _representation(text: str | None) -> Representation:
    if text is None:
        return Representation.AUTO
    if text not in (Representation.OBJECTS.value, Representation.IDS.value):
        raise Problem(400, "representation-unknown", "`objects` or `ids`", parameter="representation", position=0)
    return Representation(text)
