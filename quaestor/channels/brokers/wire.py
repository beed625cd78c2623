"""Wire format of brokers: the bodies of the reference implementation of Big Active Data, for pull and for push.

A pull channel notifies of subscriptions that have results. A push channel sends the results. Both bodies name the channel and
the time of its run in milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from quaestor.errors import QueryError

DATAVERSE: Final = "Default"
_TIME: Final = "channelExecutionEpochTime"


class WireError(QueryError):
    """Error of a message from another instance: it has another form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Message to a broker.

    time_ms: of the run, since 1970.
    subscriptions: identities that have results to fetch, of a pull channel.
    results: records of a push channel.
    """

    dataverse: str
    channel: str
    time_ms: int
    subscriptions: tuple[str, ...] = ()
    results: tuple[Any, ...] = ()


def pull_body(channel: str, run: int, subscriptions: Iterable[str], *, dataverse: str = DATAVERSE) -> str:
    """Return the notification of a run. Identities are distinct, in the order of their first result."""
    distinct = list(dict.fromkeys(subscriptions))
    return _body({**_head(channel, run, dataverse), "subscriptionIds": [distinct]})


def push_body(channel: str, run: int, rows: Sequence[Mapping[str, Any]], *, dataverse: str = DATAVERSE) -> str:
    """Return the message with the results of a run, or with a part of them.

    rows: each with `subscriptions`, and with `record` as JSON text.
    """
    results = [
        {_TIME: run // 1_000, "subscriptionIds": list(row["subscriptions"]), "result": json.loads(row["record"])}
        for row in rows
    ]
    return _body({**_head(channel, run, dataverse), "results": results})


def feed_body(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the records alone, one on each line, for the HTTP feed of another instance."""
    return "".join(f"{row['record']}\n" for row in rows)


def decoded(body: bytes | str) -> Notice:
    """Return a message that another instance sent. Raises WireError."""
    try:
        fields = json.loads(body)
        groups = fields.get("subscriptionIds", [])
        if not isinstance(groups, list) or not isinstance(fields.get("results", []), list):
            raise TypeError("subscriptionIds and results are lists")
        identities = [part for group in groups for part in (group if isinstance(group, list) else [group])]
        notice = Notice(
            dataverse=fields["dataverseName"],
            channel=fields["channelName"],
            time_ms=fields[_TIME],
            subscriptions=tuple(dict.fromkeys(map(str, identities))),
            results=tuple(fields.get("results", ())),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WireError(f"this is no message to a broker: {error!r}") from error
    if not isinstance(notice.channel, str) or isinstance(notice.time_ms, bool) or not isinstance(notice.time_ms, int):
        raise WireError(f"this is no message to a broker: channelName is a text, {_TIME} a whole number")
    return notice


def _head(channel: str, run: int, dataverse: str) -> dict[str, Any]:
    return {"dataverseName": dataverse, "channelName": channel, _TIME: run // 1_000}


def _body(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
