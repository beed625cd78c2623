"""Writer to the database, another program with plain pymongo, on command. The writer knows nothing of Quaestor.

Reads one command a line from stdin, MongoDB Extended JSON, and answers each with one line:

    {"do": "update_one", "arguments": [{"_id": 1}, {"$set": {"gate": "B7"}}]}
    {"acknowledged_ns": 1763733600000000000}

acknowledged_ns: wall-clock nanoseconds when the driver's call returned, so when the write was acknowledged.

    python writer.py mongodb://127.0.0.1:27017/?replicaSet=rs0 demo flights
"""

from __future__ import annotations

import sys
import time
from typing import Any

import pymongo
from bson import json_util
from pymongo.collection import Collection
from pymongo.errors import PyMongoError

OPERATIONS = {
    "insert_one", "insert_many", "update_one", "update_many", "replace_one", "delete_one", "delete_many",
    "find_one_and_update", "find_one_and_replace", "find_one_and_delete", "bulk_write",
}  # fmt: skip
_BULK = {"insert_one": pymongo.InsertOne, "update_one": pymongo.UpdateOne, "delete_one": pymongo.DeleteOne}


def perform(collection: Collection[dict[str, Any]], command: dict[str, Any]) -> dict[str, Any]:
    """Do what the command says; the answer is a document. Bulk members are `[name, argument...]`."""
    name, arguments = command["do"], command["arguments"]
    if name not in OPERATIONS:
        return {"error": f"unknown operation {name!r}; known: {', '.join(sorted(OPERATIONS))}"}
    if name == "bulk_write":
        arguments = [[_BULK[member](*parts) for member, *parts in arguments[0]]]
    try:
        getattr(collection, name)(*arguments)
    except PyMongoError as error:
        return {"error": str(error)}
    return {"acknowledged_ns": time.time_ns()}


def main() -> int:
    """The program."""
    url, database, collection = sys.argv[1:4]
    with pymongo.MongoClient[dict[str, Any]](url, tz_aware=True) as client:
        client.admin.command("ping")
        for line in sys.stdin:
            answer = perform(client[database][collection], json_util.loads(line))
            print(json_util.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
