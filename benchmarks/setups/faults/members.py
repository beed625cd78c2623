"""A replica set of three real mongods, one of which can die."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymongo

from quaestor.testing import servers
from quaestor.testing.servers import HOST, Server

ELECTION_MS = 2_000
_ANSWER_MS = 500
ELECTED_S = 180.0
"""A machine with ten times the load that it can bear elects a primary within this time."""


@dataclass(slots=True)
class ReplicaSet:
    members: list[Server]
    url: str

    def primary(self) -> Server | None:
        """Return the member that reports itself as the primary; None while there is none."""
        return next((member for member in self.members if _hello(member).get("isWritablePrimary")), None)

    def elected(self, *, within_s: float = ELECTED_S) -> Server:
        """Wait for a primary, and return it. The driver watches all members at once, and no member has a time to answer in.

        Raises ServerSelectionTimeoutError with the state of each member.
        """
        with pymongo.MongoClient[dict[str, Any]](self.url, serverSelectionTimeoutMS=int(within_s * 1000)) as client:
            client.admin.command("ping")
            address = client.address
        assert address is not None
        return next(member for member in self.members if member.port == address[1])

    def secondaries(self) -> list[Server]:
        return [member for member in self.members if _hello(member).get("secondary")]


@contextmanager
def replica_set(folder: Path, count: int = 3, *, election_ms: int = ELECTION_MS) -> Iterator[ReplicaSet]:
    """Members that have all data; the first begins as the primary. election_ms: how long they wait for one that is silent."""
    with ExitStack() as stack:
        members = []
        for number in range(count):
            (place := folder / f"mongod{number}").mkdir(parents=True)
            member = servers.mongod_server(place)
            if number:
                member.ready = lambda member=member: bool(_hello(member))  # type: ignore[misc]
            member.start()
            stack.callback(member.stop)
            members.append(member)
        made = ReplicaSet(members, f"mongodb://{','.join(f'{HOST}:{m.port}' for m in members)}/?replicaSet=rs0")
        with pymongo.MongoClient[dict[str, Any]](HOST, members[0].port, directConnection=True) as client:
            for number in range(1, count):  # one at a time, as the server demands
                config = client.admin.command("replSetGetConfig")["config"]
                config["version"] += 1
                config["settings"]["electionTimeoutMillis"] = election_ms
                config["settings"]["heartbeatIntervalMillis"] = ELECTION_MS // 4
                config["members"].append({"_id": number, "host": f"{HOST}:{members[number].port}"})
                client.admin.command("replSetReconfig", config)
                members[number].ready = lambda member=members[number]: bool(_hello(member).get("secondary"))  # type: ignore[misc]
                members[number].wait_ready(60)
        for member in members:  # from now on a restarted member is ready when it has a place in the set
            member.ready = lambda member=member: any(map(_hello(member).get, ("secondary", "isWritablePrimary")))  # type: ignore[misc]
        yield made


def _hello(member: Server) -> dict[str, Any]:
    """Nothing if it does not answer."""
    try:
        with pymongo.MongoClient[dict[str, Any]](
            HOST, member.port, directConnection=True, serverSelectionTimeoutMS=_ANSWER_MS, socketTimeoutMS=_ANSWER_MS
        ) as client:
            return client.admin.command("hello")
    except pymongo.errors.PyMongoError:
        return {}
