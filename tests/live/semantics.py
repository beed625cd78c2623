"""Writes and the events that they cause (docs/live_semantics.md), for every client of live queries."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

Json = dict[str, Any]
_TEXT = Path(__file__).parents[2].joinpath("docs", "live_semantics.md").read_text()
_ROW = re.compile(r"^\| `(?P<method>\w+)\((?P<arguments>.*?)\)` \|(?P<events>[^|]*)\|", re.MULTILINE)
"""A write and its events in the table."""
_EVENT = re.compile(
    r"(?P<matchType>\w+)/(?P<operation>\w+) (?P<id>\w+)(?: at (?P<index>\d+))?(?: from (?P<previousIndex>\d+))?"
)
_SUBSCRIPTION = re.search(r"```json\n(.*?)```", _TEXT, re.DOTALL)
assert _SUBSCRIPTION is not None

SUBSCRIPTION: Json = json.loads(_SUBSCRIPTION[1])
"""The message that begins the subscription."""
FILTER: Json = json.loads(SUBSCRIPTION["query"])
LIMIT: int = SUBSCRIPTION["limit"]
FIRST: Json = {"_id": "task1", "title": "My Task 1"}
"""The record that is there before the subscription. The order is that of `title`."""


class Step(NamedTuple):
    """Write of the table. events: as the document writes them."""

    method: str
    arguments: list[Any]
    events: list[str]

    def perform(self, items: Any) -> list[Json]:
        """Write, and return the expected events. Each holds the newest version of the record that the query matches."""
        before = _matching(items)
        getattr(items, self.method)(*self.arguments)
        records = before | _matching(items)
        return [_expected(text, records) for text in self.events]


def _matching(items: Any) -> Json:
    """The records that the query matches, with those beyond its limit."""
    return {record["_id"]: record for record in items.find(FILTER)}


def _expected(text: str, records: Json) -> Json:
    parts = _EVENT.fullmatch(text)
    assert parts is not None, text
    places = {name: int(parts[name]) for name in ("index", "previousIndex") if parts[name] is not None}
    return {"matchType": parts["matchType"], "operation": parts["operation"], "data": records[parts["id"]], **places}


STEPS: list[Step] = [
    Step(row["method"], json.loads(f"[{row['arguments']}]"), re.findall(r"`([^`]+)`", row["events"]))
    for row in _ROW.finditer(_TEXT)
]
"""The whole table, from first to last. `task2` is left."""
LAST_STEPS: list[Step] = [
    Step("insert_one", [{"_id": "task4", "title": "My Task 4"}], ["add/insert task4 at 1"]),
    Step("insert_one", [{"_id": "task5", "title": "My Task 5"}], ["add/insert task5 at 2"]),
    Step("insert_one", [{"_id": "task6", "title": "My Task 6"}], []),
    Step("delete_one", [{"_id": "task2"}], ["remove/delete task2 from 0", "add/none task6 at 2"]),
]
"""A record beyond the limit comes in, because another one is deleted."""
