"""Application for the benchmark of revocations: live queries of users whose roles lie in the collection `members`."""

from __future__ import annotations

import os

from fastapi import FastAPI
from pymongo import AsyncMongoClient
from starlette.requests import Request

from quaestor import Access, CollectionAccess, LiveQueries, Principal, Quaestor, QuaestorMiddleware, Rule
from quaestor.rest.access import ALL


def create() -> FastAPI:
    """An application with live queries of DATABASE at MONGO_URL. `Bearer ann` is ann."""
    quaestor = Quaestor.from_env(verification=False)
    client = AsyncMongoClient(os.environ["MONGO_URL"], event_listeners=[quaestor.capture])
    database = client[os.environ["DATABASE"]]

    async def who(request: Request) -> Principal:
        name = request.headers["authorization"].removeprefix("Bearer ")
        member = await database.members.find_one({"_id": name}) or {"roles": []}
        return Principal(user=name, roles=frozenset(member["roles"]))

    rules = {"books": CollectionAccess(read=Rule.of(allow=["role:clerk"]))}
    access = Access(collections=rules, otherwise=CollectionAccess(read=ALL))
    app = FastAPI()
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    app.include_router(LiveQueries(database, quaestor=quaestor, access=access, principal=who, rights_in=["members"]))
    return app
