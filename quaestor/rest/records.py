"""Records as a principal may use them: each operation one atomic step in the database.

The record's own rules are part of every filter, so nothing is decided on a copy that may have changed. What depends on the
record as it is (If-Match, patches) runs in a transaction: what it read cannot have changed when it commits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from quaestor.capture import not_recording
from quaestor.model import Document, SortSpec
from quaestor.rest.access import Access, Action, Principal
from quaestor.rest.bodies import require_rules
from quaestor.rest.database import Connection, is_id_taken
from quaestor.rest.etags import Preconditions, failed, record_etag
from quaestor.rest.identifiers import equals
from quaestor.rest.problems import Problem, not_found
from quaestor.rest.record_acl import Kind, condition, permits

_PLAIN: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


def decode(raw: bytes) -> dict[str, Any]:
    """Plain values in a record's bytes, that encode to the same bytes again."""
    return bson.decode(raw, _PLAIN)


def shown(sort: SortSpec) -> dict[str, int]:
    """Projection onto what an id list depends on: `_id`, and what it is sorted by."""
    paths = ["_id", *(path for path, _ in sort)]
    return {path: 1 for path in paths if not any(path.startswith(f"{other}.") for other in paths)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A record as the database keeps it now.

    created: it was made by this request.
    """

    raw: bytes
    created: bool = False

    @property
    def etag(self) -> str:
        """Entity tag of the record."""
        return record_etag(self.raw)


class Records:
    """The records of one database for one principal. Methods raise Problem, and the driver's own errors.

    Asking for what is not there and for what this principal must not see gives the same 404, after the same steps.
    """

    def __init__(self, connection: Connection, access: Access, principal: Principal) -> None:
        self._connection = connection
        self._access = access
        self._principal = principal

    @property
    def audience(self) -> tuple[str, ...]:
        """Name of the audience, equal for principals to whom the same rules apply."""
        return ("superuser",) if self._principal.superuser else self._principal.names

    def may(self, collection: str, action: Action) -> bool:
        """Whether the principal may do this in this collection."""
        return self._access.permits(collection, action, self._principal)

    def require(self, collection: str, *actions: Action) -> None:
        """Require at least one of these actions.

        Raises Problem: 403 for somebody who may read the collection, 404 for everybody else.
        """
        if not any(self.may(collection, action) for action in actions):
            raise forbidden() if self.may(collection, Action.READ) else not_found()

    def guarded(self, filter_: Document, kind: Kind) -> Document:
        """Filter with what the records' own rules demand."""
        field = self._access.record_acl
        rules = {} if field is None else condition(field, kind, self._principal)
        if not rules:
            return filter_
        return {"$and": [filter_, rules]} if "$and" in filter_ else {**filter_, **rules}

    # Reading

    async def many(
        self,
        collection: str,
        filter_: Document,
        *,
        sort: SortSpec,
        skip: int,
        limit: int,
        most_bytes: int,
        ids: bool = False,
    ) -> list[Any]:
        """Raw records; only their `_id`s and what they are sorted by if ids: then it depends on nothing else.

        most_bytes: if there are more, not all of them are read, but more than that.
        """
        cursor = self._connection.collection(collection).find(
            self.guarded(filter_, "read"),
            shown(sort) if ids else None,
            skip=skip,
            limit=limit,
            batch_size=limit,
            sort=list(sort) or None,
        )
        return await self._connection.read(cursor, most_bytes=most_bytes)

    async def some(self, collection: str, ids: Sequence[Any], *, most_bytes: int) -> list[bytes]:
        """The records with these ids that are there, in any order, *whoever* may see them: for checking them elsewhere.

        most_bytes: if there are more, not all of them are read.
        """
        cursor = self._connection.collection(collection).find({"_id": {"$in": list(ids)}}, batch_size=len(ids) + 1)
        return [bytes(record.raw) for record in await self._connection.read(cursor, most_bytes=most_bytes)]

    async def get(self, collection: str, key: Any) -> Stored:
        """A record. Raises Problem (404) if there is none that the principal may read."""
        raw = await self._find(collection, key, "read")
        if raw is None:
            raise not_found()
        return Stored(raw=raw)

    async def exists(self, collection: str) -> bool:
        """Whether there is such a record.

        Of no concern to a cached answer: what is found there is what it depends on.
        """
        with not_recording():
            return await self._connection.exists(collection)

    # Writing

    async def insert(self, collection: str, document: Mapping[str, Any]) -> Stored:
        """Insert a record.

        document: with its `_id`. A taken id raises the driver's DuplicateKeyError.
        """
        await self._require_collection(collection)
        await self._connection.run(self._connection.collection(collection).insert_one, dict(document))
        return Stored(raw=bson.encode(document), created=True)

    async def put(
        self, collection: str, key: Any, document: Mapping[str, Any], *, preconditions: Preconditions
    ) -> Stored:
        """Make the record or replace it, as far as both are allowed. Rules that the document does not mention are kept.

        document: without `_id`.
        """
        insert = self.may(collection, Action.INSERT)
        update = self.may(collection, Action.UPDATE)
        whole = {"_id": key, **document}
        if preconditions.create_only or not update:
            return await self._create(collection, whole, preconditions)
        if not preconditions.absent:
            return await self._put_if(collection, key, whole, preconditions, insert=insert)
        if insert:
            await self._require_collection(collection)
        return await self._upsert(collection, key, whole, insert=insert)

    async def change(
        self,
        collection: str,
        key: Any,
        make: Callable[[bytes], Mapping[str, Any]],
        *,
        preconditions: Preconditions,
    ) -> Stored:
        """Change one record by what make() says of its bytes: a new record, or update operators. Atomic."""
        table = self._connection.collection(collection)

        async def body(session: Any) -> bytes:
            before = await self._writable(collection, key, session, preconditions)
            wanted = make(before)
            operators = any(name.startswith("$") for name in wanted)
            change = table.find_one_and_update if operators else table.find_one_and_replace
            after = await self._connection.run(
                change, {"_id": equals(key)}, wanted, return_document=ReturnDocument.AFTER, session=session
            )
            if operators:
                require_rules(decode(after.raw), self._access.record_acl)
            return bytes(after.raw)

        return Stored(raw=await self._connection.transaction(body))

    async def delete(self, collection: str, key: Any, *, preconditions: Preconditions) -> None:
        """Delete a record. Raises Problem if there is none, or a precondition does not hold."""
        table = self._connection.collection(collection)
        if preconditions.absent:
            filter_ = self.guarded({"_id": equals(key)}, "write")
            if not (await self._connection.run(table.delete_one, filter_)).deleted_count:
                raise await self._absent(collection, key)
            return

        async def body(session: Any) -> None:
            await self._writable(collection, key, session, preconditions)
            await self._connection.run(table.delete_one, {"_id": equals(key)}, session=session)

        await self._connection.transaction(body)

    def sees(self, raw: bytes) -> bool:
        """Whether the principal may be shown this record."""
        field = self._access.record_acl
        return field is None or permits(decode(raw).get(field, {}), "read", self._principal)

    async def _find(self, collection: str, key: Any, kind: Kind, session: Any = None) -> bytes | None:
        found = await self._connection.run(
            self._connection.collection(collection).find_one,
            self.guarded({"_id": equals(key)}, kind),
            session=session,
        )
        return None if found is None else bytes(found.raw)

    async def _writable(self, collection: str, key: Any, session: Any, preconditions: Preconditions) -> bytes:
        before = await self._find(collection, key, "write", session)
        if before is None:
            raise await self._absent(collection, key, session)
        preconditions.require(record_etag(before))
        return before

    async def _absent(self, collection: str, key: Any, session: Any = None) -> Problem:
        """403 for somebody who may see the record, 404 for everybody else, whether it exists or not."""
        visible = await self._find(collection, key, "read", session)
        return not_found() if visible is None or not self.may(collection, Action.READ) else forbidden()

    async def _require_collection(self, collection: str) -> None:
        """A write must not make a collection: names are the application's."""
        if not await self.exists(collection):
            raise not_found()

    async def _create(self, collection: str, whole: Mapping[str, Any], preconditions: Preconditions) -> Stored:
        if not self.may(collection, Action.INSERT):
            raise forbidden()
        if preconditions.match is not None:
            raise failed("If-Match names a record, and this may only make new ones.")
        try:
            return await self.insert(collection, whole)
        except DuplicateKeyError as error:
            if not is_id_taken(error):
                raise
            raise (failed("There is a record already.") if preconditions.create_only else forbidden()) from error

    async def _upsert(self, collection: str, key: Any, whole: Mapping[str, Any], *, insert: bool) -> Stored:
        table = self._connection.collection(collection)
        filter_ = self.guarded({"_id": equals(key)}, "write")
        for last in (False, True):
            try:
                before = await self._connection.run(
                    table.find_one_and_update, filter_, self._replacement(whole), upsert=insert,
                    return_document=ReturnDocument.BEFORE,
                )  # fmt: skip
                break
            except DuplicateKeyError as error:
                # Made by somebody else at this moment: then the second try replaces it. Or not for us to replace.
                if not is_id_taken(error):
                    raise
                if last:
                    raise forbidden() from error
        if before is not None:
            return Stored(raw=bson.encode(self._keeping(before.raw, whole)))
        if not insert:
            raise await self._absent(collection, key)
        return Stored(raw=bson.encode(whole), created=True)

    async def _put_if(
        self, collection: str, key: Any, whole: Mapping[str, Any], preconditions: Preconditions, *, insert: bool
    ) -> Stored:
        try:
            return await self.change(
                collection, key, lambda before: self._keeping(before, whole), preconditions=preconditions
            )
        except Problem as problem:
            if problem.status != 404:
                raise
            if insert and preconditions.match is None:
                return await self._create(collection, whole, preconditions)
            if insert:
                preconditions.require(None)
            raise

    def _keeping(self, before: bytes, whole: Mapping[str, Any]) -> dict[str, Any]:
        """What _replacement() makes of a record."""
        known = decode(before)
        field = self._access.record_acl
        kept = {field: known[field]} if field is not None and field not in whole and field in known else {}
        return {**whole, "_id": known["_id"], **kept}

    def _replacement(self, whole: Mapping[str, Any]) -> list[Document]:
        """An update that replaces the record but for its `_id` and, if `whole` is silent about them, its rules."""
        field = self._access.record_acl
        kept = {"_id": "$_id"} | ({field: f"${field}"} if field is not None and field not in whole else {})
        return [{"$replaceWith": {"$mergeObjects": [{"$literal": whole}, kept]}}]


def forbidden() -> Problem:
    """Problem (403) for what the principal may not do."""
    return Problem(403, "forbidden", "You may not do this.")
