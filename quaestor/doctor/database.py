"""Checks of a MongoDB that can be followed: rights of its user, images, write concern, clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pymongo
from bson import Timestamp
from bson.datetime_ms import DatetimeMS
from pymongo.errors import OperationFailure, PyMongoError

from quaestor.capture.clients import WatchClient
from quaestor.doctor import clocks, reachability
from quaestor.doctor.database_access import SYSTEM_DATABASES, UNAUTHORIZED, Access
from quaestor.doctor.diagnosis import Diagnosis, mend, ok, warn
from quaestor.settings import Settings

_PATIENCE_S: Final = 10.0
_WIRE_VERSION_6_0: Final = 17
_RIGHTS: Final = "mongod rights"
_IMAGES: Final = "images"
_CONCERN: Final = "write concern"
_JOURNAL: Final = "journal"
_APPLY_OPS: Final = "applyOps"
_MONGOSYNC: Final = "mongosync_reserved_for_internal_use"
_INVALIDATE: Final = "quaestor invalidate --collection DATABASE.COLLECTION"
_LOOKED_BACK_S: Final = 3_600
_OPLOG_MS: Final = 2_000
_UNSEEN: Final = (
    "change streams do not report its writes, so answers stay old for their lifetime (mongorestore --oplogReplay and mongosync "
    "write like that). A captured client's command invalidates in every process that shares a Redis; without one, in its own. "
    "Invalidate what it wrote when it has ended"
)

Check = Callable[[Access, Settings], Iterator[Diagnosis]]
"""Function that checks one thing. Raises PyMongoError."""


def examined(client: WatchClient, settings: Settings, *, hosts: Any) -> list[Diagnosis]:
    """Diagnoses of one MongoDB; nothing is changed. Blocking, up to some ten seconds for each question.

    hosts: URL, or another value that the client received as `host`.
    """
    try:
        with pymongo.timeout(_PATIENCE_S):
            access = Access.of(client)
    except PyMongoError as error:
        return [reachability.unreachable(hosts, error)]
    if not_a_set := reachability.standalone(access.hello, access.address, _argv(access)):
        return [not_a_set]
    checks: tuple[Check, ...] = (
        _version,
        _change_streams,
        _writes,
        _write_concern,
        _journal,
        _clock,
        _images,
        _unreported,
    )
    return [diagnosis for check in checks for diagnosis in _diagnoses(check, access, settings)]


def _diagnoses(check: Check, access: Access, settings: Settings) -> list[Diagnosis]:
    """Findings of one check. A question that mongod does not answer is a finding too."""
    try:
        with pymongo.timeout(_PATIENCE_S):
            return list(check(access, settings))
    except PyMongoError as error:
        subject = check.__name__.strip("_").replace("_", " ")
        return [warn(subject, f"could not be asked: {str(error).partition(', full error')[0]}")]


def _version(access: Access, settings: Settings) -> Iterator[Diagnosis]:
    yield reachability.version(access)


def _change_streams(access: Access, settings: Settings) -> Iterator[Diagnosis]:
    """Check that a change stream can be opened in the way of the ingest."""
    stages = [{"$changeStream": {"allChangesForCluster": True}}]
    try:
        access.client.admin.aggregate(stages, maxAwaitTimeMS=1).close()
    except OperationFailure as error:
        if error.code != UNAUTHORIZED:
            raise
        if access.user is None:
            yield mend(
                _RIGHTS,
                "this mongod wants to know who asks, and MONGO_URL names nobody: make a user, and write "
                "mongodb://quaestor:PASSWORD@... in MONGO_URL",
                access.command("admin", {"createUser": "quaestor", "pwd": "PASSWORD", "roles": _roles(settings)}),
            )
        else:
            yield mend(
                _RIGHTS,
                f"{access.user[0]} may not open a change stream on the whole deployment, so nothing would report writes",
                access.grant("readAnyDatabase", "admin"),
            )
        return
    yield ok(_RIGHTS, f"{access.user[0] if access.user else 'everybody'} may open change streams on all databases")


def _writes(access: Access, settings: Settings) -> Iterator[Diagnosis]:
    """Check that the user may write to the control namespace, as invalidation by tag and by URL does."""
    database, _, collection = settings.store.control_namespace.partition(".")
    if not (access.may("insert", database, collection) and access.may("remove", database, collection)):
        yield warn(
            _RIGHTS,
            f"{access.user and access.user[0]} may not write to {settings.store.control_namespace}: invalidation by tag and by "
            "URL will fail, invalidation by writes works",
            access.grant("readWrite", database),
        )


def _write_concern(access: Access, settings: Settings) -> Iterator[Diagnosis]:
    """Check of the write concern. An election can roll back writes that a majority does not have, and reads in between with
    them."""
    own = access.client.write_concern.document.get("w")
    members = len(access.hello.get("hosts", ()))
    if own == 0:
        yield mend(
            _CONCERN,
            "the URL says w=0: nobody learns whether a write failed, and answers to requests that wrote cannot wait for it; take "
            "w=0 out of MONGO_URL",
            "export MONGO_URL=$(printf %s \"$MONGO_URL\" | sed -E 's/([?&])w=0&?/\\1/')",
        )
    elif own == 1 and members > 1:
        yield warn(
            _CONCERN,
            "the URL says w=1: a write that one member has can be rolled back by an election; take w=1 out of MONGO_URL",
            "export MONGO_URL=$(printf %s \"$MONGO_URL\" | sed -E 's/([?&])w=1&?/\\1/')",
        )
    try:
        concern = access.client.admin.command("getDefaultRWConcern")
    except OperationFailure as error:
        if error.code != UNAUTHORIZED:
            raise
        yield warn(
            _CONCERN, "the server's default may not be asked for by this user", access.grant("clusterMonitor", "admin")
        )
        return
    default = concern.get("defaultWriteConcern", {}).get("w", 1)
    if default == "majority" or (isinstance(default, int) and default > members // 2):
        yield ok(_CONCERN, f"w: {default} unless a writer says otherwise; members with data: {members}")
    else:
        yield warn(
            _CONCERN,
            f"w: {default} of {members} unless a writer says otherwise: an election can roll acknowledged writes back",
            access.command("admin", {"setDefaultRWConcern": 1, "defaultWriteConcern": {"w": "majority"}}),
        )


def _journal(access: Access, settings: Settings) -> Iterator[Diagnosis]:
    """Check that journal flushes can be requested; the request is a delete that matches nothing."""
    if not settings.grid.journal_flush_ms:
        return
    database, _, collection = settings.store.control_namespace.partition(".")
    if access.may("remove", database, collection):
        yield ok(_JOURNAL, f"flushed when a write waits for it, looked for every {settings.grid.journal_flush_ms} ms")
    else:
        yield warn(
            _JOURNAL,
            f"{access.user and access.user[0]} may not remove from {settings.store.control_namespace}, so journal_flush_ms has "
            "no effect: events of writes with w: 1 come up to 100 ms late",
            access.grant("readWrite", database),
        )


def _clock(access: Access, settings: Settings) -> Iterator[Diagnosis]:
    def database_clock() -> float:
        return float(int(DatetimeMS(access.client.admin.command("hello")["localTime"])))

    yield clocks.compared("mongod", database_clock, staleness_bound_ms=settings.grid.staleness_bound_ms)


def _images(access: Access, settings: Settings) -> Iterator[Diagnosis]:
    """Check of pre- and post-images, collection by collection."""
    if access.hello["maxWireVersion"] < _WIRE_VERSION_6_0:
        return
    enabling = settings.grid.pre_images == "enable"
    control = settings.store.control_namespace.partition(".")[0]
    for name in sorted(access.client.list_database_names()):
        if name in SYSTEM_DATABASES or name == control:
            continue
        for entry in sorted(
            access.client[name].list_collections(filter={"type": "collection"}),
            key=lambda collection: collection["name"],
        ):
            collection: str = entry["name"]
            if collection.startswith("system."):
                continue
            namespace = f"{name}.{collection}"
            if entry.get("options", {}).get("changeStreamPreAndPostImages", {}).get("enabled"):
                yield ok(_IMAGES, f"{namespace} records pre- and post-images")
            elif enabling and access.may("collMod", name, collection):
                yield ok(_IMAGES, f"{namespace} will record pre- and post-images once an answer depends on it")
            elif enabling:
                yield mend(
                    _IMAGES,
                    f"{namespace} records no pre- and post-images, and pre_images is 'enable', which this user may not",
                    access.grant("dbAdmin", name),
                )
            else:
                on = {"collMod": collection, "changeStreamPreAndPostImages": {"enabled": True}}
                yield warn(
                    _IMAGES,
                    f"{namespace} records no pre- and post-images: deletes and updates invalidate more than has "
                    "changed; or let Quaestor turn them on: pre_images='enable'",
                    access.command(name, on),
                )


def _unreported(access: Access, settings: Settings) -> Iterator[Diagnosis]:
    """Check for traces of tools that write by applyOps. The oplog shows the commands of the last hour, if this user may read
    it."""
    if _MONGOSYNC in access.client.list_database_names():
        yield warn(_APPLY_OPS, f"mongosync has worked here (it left {_MONGOSYNC}): {_UNSEEN}", _INVALIDATE)
    recent = {
        "ts": {"$gte": Timestamp(max(0, access.hello["lastWrite"]["opTime"]["ts"].time - _LOOKED_BACK_S), 0)},
        "op": "c",
        "o.applyOps": {"$exists": True},
        "lsid": {"$exists": False},  # transactions are logged alike, and are reported
    }
    try:
        entry = access.client.local["oplog.rs"].find_one(recent, {"ts": 1}, max_time_ms=_OPLOG_MS)
    except PyMongoError:
        return  # this user may not read the oplog, or it is too long to be read for this
    if entry is not None:
        yield warn(
            _APPLY_OPS,
            f"applyOps was used here at {entry['ts'].as_datetime():%Y-%m-%d %H:%M:%S} UTC: {_UNSEEN}",
            _INVALIDATE,
        )


def _roles(settings: Settings) -> list[dict[str, str]]:
    control = settings.store.control_namespace.partition(".")[0]
    return [{"role": "readAnyDatabase", "db": "admin"}, {"role": "readWrite", "db": control}]


def _argv(access: Access) -> list[str]:
    try:
        return list(access.client.admin.command("getCmdLineOpts")["argv"])
    except PyMongoError:
        return []
