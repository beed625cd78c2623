"""Access to the examined MongoDB: its address, the user and the user's rights, and the shell commands of a remedy."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pymongo
from pymongo.errors import PyMongoError

from quaestor.capture.clients import WatchClient

UNAUTHORIZED = 13
"""Code of mongod's refusal of an action that the user may not do."""
SYSTEM_DATABASES = frozenset({"admin", "config", "local"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Access to a database that answers.

    hello: the primary's answer to `hello`.
    user: (name, database) of the authenticated user; None: nobody has authenticated, or nobody has to.
    privileges: privileges of the user from connectionStatus; None: everything is allowed to everybody, or it is not known.
    """

    client: WatchClient
    hello: Mapping[str, Any]
    user: tuple[str, str] | None
    privileges: Sequence[Mapping[str, Any]] | None

    @classmethod
    def of(cls, client: WatchClient) -> Access:
        """Access through a client, with everything asked from the server. Raises PyMongoError."""
        hello = client.admin.command("hello")
        status = client.admin.command("connectionStatus", showPrivileges=True)["authInfo"]
        users = status["authenticatedUsers"]
        user = (users[0]["user"], users[0]["db"]) if users else None
        return cls(
            client=client, hello=hello, user=user, privileges=status["authenticatedUserPrivileges"] if users else None
        )

    @property
    def address(self) -> str:
        """host:port of the primary, as this client reaches it."""
        host, port = self.client.address or ("127.0.0.1", 27017)
        return f"{host}:{port}"

    def may(self, action: str, database: str, collection: str) -> bool:
        """Whether the user may do this action there, as far as is known."""
        return self.privileges is None or any(
            action in privilege["actions"] and _covers(privilege["resource"], database, collection)
            for privilege in self.privileges
        )

    def command(self, database: str, command: Mapping[str, Any]) -> str:
        """Shell command that runs a database command, as an administrator if there are users. Contains no credentials."""
        name = self.hello.get("setName")
        return mongosh(self.address, database, command, replica_set=name, administrator=self.user is not None)

    def grant(self, role: str, database: str) -> str:
        """Shell command that gives the user a role on a database."""
        name, home = self.user or ("quaestor", "admin")
        return self.command(home, {"grantRolesToUser": name, "roles": [{"role": role, "db": database}]})


def mongosh(
    address: str,
    database: str,
    command: Mapping[str, Any],
    *,
    replica_set: str | None = None,
    administrator: bool = False,
) -> str:
    """Shell command that runs a database command at an address.

    administrator: whether the command must authenticate.
    """
    url = f"mongodb://{address}/" + (f"?replicaSet={replica_set}" if replica_set else "?directConnection=true")
    who = " --username ADMIN" if administrator else ""
    script = f"db.getSiblingDB({json.dumps(database)}).runCommand({json.dumps(command)})"
    return f"mongosh '{url}'{who} --eval {shlex.quote(script)}"


def told_directly(address: tuple[str, int | None], options: Mapping[str, Any]) -> tuple[Any, Sequence[str]] | None:
    """Answer of a single server, and its command line as far as this client may know it; None: no answer.

    options: options of the URL; credentials are not used.
    """
    tls = {name: value for name, value in options.items() if name.lower().startswith(("tls", "ssl"))}
    client: WatchClient = pymongo.MongoClient(
        address[0], address[1], directConnection=True, serverSelectionTimeoutMS=2_000, **tls
    )
    with client:
        try:
            hello = client.admin.command("hello")
        except PyMongoError:
            return None
        try:
            return hello, client.admin.command("getCmdLineOpts")["argv"]
        except PyMongoError:
            return hello, ()


def _covers(resource: Mapping[str, Any], database: str, collection: str) -> bool:
    if resource.get("anyResource"):
        return True
    return resource.get("db") in ("", database) and resource.get("collection") in ("", collection)
