"""Probes of the primary: its progress, polled repeatedly, and the moment up to which delivery is proved.

The proof is in the text of `quaestor/invalidation/ingest/follower.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import bson
import pymongo
from pymongo.errors import AutoReconnect, OperationFailure

from quaestor.clock import Clock
from quaestor.cluster_time import version_of
from quaestor.errors import ConfigurationError
from quaestor.model import Version

PROBES_KEPT: Final = 1_000
"""Largest number of probes kept. Unproven ones pile up while no majority commits; the newest suffice afterwards."""
_ANSWER_TIMEOUT_S: Final = 5.0
_WIRE_VERSION_6_0: Final = 17


class Probe(NamedTuple):
    """Progress that the primary reports.

    at_ms: ingest's clock before the question.
    applied: version of the primary's newest write.
    majority: the primary's majority commit point.
    images: the primary records pre- and post-images (6.0 and later).
    election: the election that made it primary, and its process; None: not known.
    """

    at_ms: int
    applied: Version
    majority: Version
    images: bool
    election: str | None


def probe_primary(client: pymongo.MongoClient[Any], clock: Clock) -> Probe:
    """Ask the primary for its progress. One round trip.

    Raises ConfigurationError with the remedy if this database cannot be followed, PyMongoError if it does not answer.
    """
    at_ms = clock()
    with pymongo.timeout(_ANSWER_TIMEOUT_S):
        hello = client.get_database("admin", codec_options=bson.DEFAULT_CODEC_OPTIONS).command("hello")
    if hello.get("msg") == "isdbgrid":
        raise ConfigurationError(
            "this is a mongos: sharded clusters are not supported yet; set MONGO_URL to a replica set"
        )
    if "setName" not in hello:
        raise ConfigurationError(
            "this mongod is standalone and has no change streams; start it with --replSet rs0, run rs.initiate() "
            "once, and add ?replicaSet=rs0 to MONGO_URL (one member is enough)"
        )
    last = hello["lastWrite"]
    if "majorityOpTime" not in last:
        raise AutoReconnect("the primary was elected just now and does not know its majority commit point yet")
    return Probe(
        at_ms=at_ms,
        applied=version_of(last["opTime"]["ts"]),
        majority=version_of(last["majorityOpTime"]["ts"]),
        images=hello["maxWireVersion"] >= _WIRE_VERSION_6_0,
        election=_reign(hello),
    )


def _reign(hello: Mapping[str, Any]) -> str | None:
    """Return the identity of a primary's reign, which ends with the process.

    The number of an election alone is no identity. A mongod that starts on an older copy of its files counts elections from
    there, and reaches the same number again.
    """
    if "electionId" not in hello:
        return None
    process = hello.get("topologyVersion", {}).get("processId")  # from MongoDB 4.4 on
    return str(hello["electionId"]) if process is None else f"{hello['electionId']} {process}"


def replica_set_id(client: pymongo.MongoClient[Any]) -> str | None:
    """Return the identity of the replica set; None if this user may not read it. Raises PyMongoError without an answer."""
    try:
        with pymongo.timeout(_ANSWER_TIMEOUT_S):
            config = client.admin.command("replSetGetConfig")["config"]
        return str(config["settings"]["replicaSetId"])
    except (OperationFailure, KeyError):
        return None


def proven(probes: deque[Probe], *, delivered: Version, idle: bool) -> int | None:
    """Return the newest moment before which every write is delivered, or None if there is no new one; drop its probes.

    delivered: the newest version delivered.
    idle: the last read, begun after the newest probe, came back empty.
    """
    moment: int | None = None
    majority = probes[-1].majority if probes else 0
    while probes and (probes[0].applied < delivered or (idle and probes[0].applied <= majority)):
        moment = probes.popleft().at_ms
    return moment
