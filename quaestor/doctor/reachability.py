"""Reachability of MongoDB, and whether it can be followed at all: a replica set, in a supported version."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pymongo.errors import PyMongoError
from pymongo.uri_parser import parse_uri

from quaestor.doctor.database_access import Access, mongosh, told_directly
from quaestor.doctor.diagnosis import Diagnosis, mend, ok, warn

SUBJECT: Final = "mongod"
_SET: Final = "rs0"
_IMAGES_FROM: Final = (6, 0)
_OLDEST: Final = (4, 4)


def unreachable(hosts: Any, error: PyMongoError) -> Diagnosis:
    """Diagnosis of a database whose primary is not found; each server is asked alone.

    hosts: URL, or another value that a client takes as `host`.
    """
    for url in [hosts] if isinstance(hosts, str) else hosts or []:
        seeds, options, wanted = _seeds(url)
        for seed in seeds:
            reply = told_directly(seed, options)
            if reply is None:
                continue
            hello, argv = reply
            address = f"{seed[0]}:{seed[1] or 27017}"
            if not_a_set := standalone(hello, address, argv):
                return not_a_set
            if wanted and hello.get("setName") not in (None, wanted):
                return mend(
                    SUBJECT,
                    f"{address} belongs to the replica set {hello['setName']}, the URL says {wanted}",
                    f"export MONGO_URL='mongodb://{address}/?replicaSet={hello['setName']}'",
                )
            others = ", ".join(hello.get("hosts", ()))
            return mend(
                SUBJECT,
                f"{address} answers, but no primary is reached among the members as they call themselves ({others}): "
                f"{_short(error)}",
                mongosh(address, "admin", {"replSetGetStatus": 1}),
            )
    return mend(SUBJECT, f"MongoDB does not answer: {_short(error)}", "sudo systemctl start mongod")


def standalone(hello: Mapping[str, Any], address: str, argv: Sequence[str] = ()) -> Diagnosis | None:
    """Diagnosis of a server that is no replica set; None: it is one."""
    if hello.get("msg") == "isdbgrid":
        return mend(
            SUBJECT,
            f"{address} is a mongos: sharded clusters are not supported yet; name a replica set",
            "export MONGO_URL='mongodb://HOST:27017/?replicaSet=rs0'",
        )
    if hello.get("setName"):
        return None
    initiate = mongosh(address, "admin", {"replSetInitiate": {"_id": _SET, "members": [{"_id": 0, "host": address}]}})
    name = f"export MONGO_URL='mongodb://{address}/?replicaSet={_SET}'"
    if hello.get("isreplicaset"):
        return mend(
            SUBJECT, f"{address} was started as a member of a replica set that was never initiated", initiate, name
        )
    restart = shlex.join([*argv, "--replSet", _SET]) if argv else f"mongod --replSet {_SET} --dbpath /var/lib/mongodb"
    return mend(
        SUBJECT,
        f"{address} is standalone and has no change streams. Make it a replica set, one member is enough: stop it, start it "
        "as the first line says, and run the second once; its data stay",
        restart,
        initiate,
        name,
    )


def version(access: Access) -> Diagnosis:
    """Diagnosis of the server's version, and of the features that older ones lack. Raises PyMongoError."""
    text: str = access.client.admin.command("buildInfo")["version"]
    numbers = tuple(int(number) for number in re.findall(r"\d+", text)[:2])
    place = f"MongoDB {text}, replica set {access.hello['setName']}, primary {access.address}"
    if numbers >= _IMAGES_FROM:
        return ok(SUBJECT, place)
    lacks = f"{place}: before 6.0 there are no post-images, so updates are looked up afterwards"
    if numbers >= _OLDEST:
        return warn(SUBJECT, f"{lacks}; more is invalidated than has changed", "sudo apt-get install mongodb-org=6.0.*")
    return mend(SUBJECT, f"{lacks}; 4.4 is the oldest that is supported", "sudo apt-get install mongodb-org=6.0.*")


def _seeds(url: str) -> tuple[Sequence[tuple[str, int | None]], Mapping[str, Any], str | None]:
    """Servers that a URL names, its options, and the replica set that it names."""
    if "://" not in url:
        host, _, port = url.partition(":")
        return [(host, int(port) if port.isdigit() else None)], {}, None
    if not url.startswith("mongodb://"):
        return (), {}, None
    parsed = parse_uri(url, warn=True)
    return parsed["nodelist"], parsed["options"], parsed["options"].get("replicaSet")


def _short(error: PyMongoError) -> str:
    return str(error).split(" (configured timeouts", 1)[0].split(", Timeout:", 1)[0]
