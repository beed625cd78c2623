"""Records as a principal may use them: each operation is one atomic step in the database.

The record's own rules are part of every filter, so no decision uses a copy that may have changed. Operations that depend on the
record's present state (If-Match, patches) run in a transaction: the state that it read is unchanged when it commits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError, OperationFailure, PyMongoError

from quaestor.capture import not_recording
from quaestor.model import Document, SortSpec
from quaestor.rest.access import Access, Action, Principal
from quaestor.rest.bodies import require_rules
from quaestor.rest.database import Connection, duplicate, duplicate_key, is_id_taken, problem_of
from quaestor.rest.etags import Preconditions, failed, record_etag
from quaestor.rest.identifiers import equals
from quaestor.rest.malformed_rules import MalformedRules
from quaestor.rest.problems import Problem, not_found
from quaestor.rest.record_acl import Kind
from quaestor.rest.rights import Rights, forbidden

_PLAIN: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


_LOOK_MS: Final = 100
"""Time for the server to look for malformed records that a list leaves out. Most lists leave out none and are searched fully."""


def decode(raw: bytes) -> dict[str, Any]:
    """Return the plain values in a record's bytes, which encode to the same bytes again."""
    return bson.decode(raw, _PLAIN)


def shown(sort: SortSpec) -> dict[str, int]:
    """Return the projection onto the fields that an id list depends on: `_id`, and its sort fields."""
    paths = ["_id", *(path for path, _ in sort)]
    return {path: 1 for path in paths if not any(path.startswith(f"{other}.") for other in paths)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A record as the database keeps it now.

    shown: the principal may read it, and so receive its content and its tag.
    created: this request has created it.
    """

    raw: bytes
    shown: bool
    created: bool = False

    @property
    def etag(self) -> str:
        """Entity tag of the record."""
        return record_etag(self.raw)


class Records:
    """The records of one database for one principal. Methods raise Problem, and the driver's own errors.

    Requests for a missing record and for one that this principal must not see give the same 404, after the same steps.

    rights: of the principal.
    malformed: receives reports of records whose own rules are malformed; None: no record is searched.
    """

    def __init__(
        self,
        connection: Connection,
        access: Access,
        principal: Principal,
        malformed: MalformedRules | None = None,
    ) -> None:
        self._connection = connection
        self.rights = Rights(access, principal)
        self._access = access
        self._malformed = malformed

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
        """Return raw records. ids: only their `_id`s and sort fields; the result then depends on nothing else.

        most_bytes: reading stops once the records exceed it.
        """
        cursor = self._connection.collection(collection).find(
            self.rights.guarded(filter_, "read"),
            shown(sort) if ids else None,
            skip=skip,
            limit=limit,
            batch_size=limit,
            sort=list(sort) or None,
        )
        records = await self._connection.read(cursor, most_bytes=most_bytes)
        if self._malformed is not None and self.rights.judged and self._malformed.list_is_due(collection):
            with suppress(PyMongoError):  # the list is complete, even if this fails
                await self._look_for_malformed(collection, filter_, most_ms=_LOOK_MS)
        return records

    async def some(self, collection: str, ids: Sequence[Any], *, most_bytes: int) -> list[bytes]:
        """Return the existing records with these ids, in any order, without access rules: the caller has to check them.

        most_bytes: reading stops once the records exceed it.
        """
        cursor = self._connection.collection(collection).find({"_id": {"$in": list(ids)}}, batch_size=len(ids) + 1)
        return [bytes(record.raw) for record in await self._connection.read(cursor, most_bytes=most_bytes)]

    async def get(self, collection: str, key: Any) -> Stored:
        """Return a record. Raises Problem (404) if there is none that the principal may read."""
        raw = await self._find(collection, key, "read")
        if raw is None:
            await self._look_for_malformed(collection, {"_id": equals(key)})
            raise not_found()
        return Stored(raw=raw, shown=True)

    async def exists(self, collection: str) -> bool:
        """Whether the collection exists.

        Not recorded: a cached answer depends on the records that it found.
        """
        with not_recording():
            return await self._connection.exists(collection)

    # Writing

    async def insert(self, collection: str, document: Mapping[str, Any]) -> Stored:
        """Insert a record.

        document: with its `_id`.
        """
        await self._require_collection(collection)
        try:
            return await self._insert(collection, document)
        except DuplicateKeyError as error:
            raise await self._conflict(collection, error) from error

    async def put(
        self, collection: str, key: Any, document: Mapping[str, Any], *, preconditions: Preconditions
    ) -> Stored:
        """Create the record or replace it, as far as both are allowed. Rules that the document does not mention are kept.

        document: without `_id`. Rules in it must equal the stored ones, unless the principal may change them.
        """
        insert = self.rights.may(collection, Action.INSERT)
        update = self.rights.may(collection, Action.UPDATE)
        whole = {"_id": key, **document}
        if preconditions.create_only or not update:
            return await self._create(collection, whole, preconditions)
        if not preconditions.absent or (
            self.rights.mentions_rules(whole) and not self.rights.may_change_rules(collection)
        ):
            return await self._put_if(collection, key, whole, preconditions, insert=insert)
        if insert:
            await self._require_collection(collection)
        return await self._upsert(collection, key, whole, insert=insert)

    async def change(
        self,
        collection: str,
        key: Any,
        make: Callable[[bytes, bool], Mapping[str, Any]],
        *,
        preconditions: Preconditions,
        mentions_rules: bool = False,
    ) -> Stored:
        """Change one record by the result of make() for its bytes: a new record, or update operators. Atomic.

        make: also receives whether the principal may read the record.
        mentions_rules: it may change the record's own rules.
        """
        table = self._connection.collection(collection)
        shown = False

        async def body(session: Any) -> bytes:
            nonlocal shown
            before = await self._writable(collection, key, session, preconditions)
            shown = self.rights.shows(collection, decode(before))
            rules_stand = not self.rights.may_change_rules(collection)
            if rules_stand and mentions_rules and not shown:
                raise self.rights.rules_forbidden()  # a guess that passes would reveal the rules
            wanted = make(before, shown)
            operators = any(name.startswith("$") for name in wanted)
            change = table.find_one_and_update if operators else table.find_one_and_replace
            after = await self._connection.run(
                change, {"_id": equals(key)}, wanted, return_document=ReturnDocument.AFTER, session=session
            )
            if operators:
                require_rules(decode(after.raw), self._access.record_acl)
            if rules_stand:
                self.rights.require_rules_kept(decode(before), decode(after.raw))
            return bytes(after.raw)

        try:
            raw = await self._connection.transaction(body)
        except DuplicateKeyError as error:
            raise await self._conflict(collection, error) from error
        except OperationFailure as error:
            if (problem := problem_of(error, wrote=True, quotable=shown)) is None:
                raise
            raise problem from error
        return Stored(raw=raw, shown=self.rights.shows(collection, decode(raw)))

    async def delete(self, collection: str, key: Any, *, preconditions: Preconditions) -> None:
        """Delete a record. Raises Problem if there is none, or a precondition does not hold."""
        table = self._connection.collection(collection)
        if preconditions.absent:
            filter_ = self.rights.guarded({"_id": equals(key)}, "write")
            if not (await self._connection.run(table.delete_one, filter_)).deleted_count:
                raise await self._absent(collection, key)
            return

        async def body(session: Any) -> None:
            await self._writable(collection, key, session, preconditions)
            await self._connection.run(table.delete_one, {"_id": equals(key)}, session=session)

        await self._connection.transaction(body)

    async def _look_for_malformed(
        self, collection: str, filter_: Document, session: Any = None, most_ms: int = 0
    ) -> None:
        """Report to the operator a record that is hidden because its rules are malformed. No answer depends on it.

        most_ms: time limit of the server; 0: that of any request. Raises the driver's errors.
        """
        malformed = self.rights.malformed(filter_)
        if malformed is None or self._malformed is None:
            return
        with not_recording():
            find = partial(self._connection.collection(collection).find_one, max_time_ms=most_ms or None)
            if await self._connection.run(find, malformed, {"_id": 1}, session=session) is not None:
                self._malformed.report(collection)

    async def _conflict(self, collection: str, error: DuplicateKeyError) -> Problem:
        """Return a 409, with the fields only if the principal may read the record that has the value."""
        value = {path: {"$eq": each} for path, each in duplicate_key(error).items()}
        if not value or not self.rights.may(collection, Action.READ):
            return duplicate()
        record = await self._connection.run(
            self._connection.collection(collection).find_one, self.rights.guarded(value, "read"), {"_id": 1}
        )
        return duplicate(None if record is None else error)

    async def _find(self, collection: str, key: Any, kind: Kind, session: Any = None) -> bytes | None:
        record = await self._connection.run(
            self._connection.collection(collection).find_one,
            self.rights.guarded({"_id": equals(key)}, kind),
            session=session,
        )
        return None if record is None else bytes(record.raw)

    async def _writable(self, collection: str, key: Any, session: Any, preconditions: Preconditions) -> bytes:
        before = await self._find(collection, key, "write", session)
        if before is None:
            raise await self._absent(collection, key, session)
        preconditions.require(record_etag(before), readable=self.rights.shows(collection, decode(before)))
        return before

    async def _absent(self, collection: str, key: Any, session: Any = None) -> Problem:
        """Return 403 if the principal may see the record, else 404, whether it exists or not."""
        await self._look_for_malformed(collection, {"_id": equals(key)}, session)
        visible = await self._find(collection, key, "read", session)
        return not_found() if visible is None or not self.rights.may(collection, Action.READ) else forbidden()

    async def _require_collection(self, collection: str) -> None:
        """Raise 404 for an unknown collection: a write must not create one, because names are the application's."""
        if not await self.exists(collection):
            raise not_found()

    async def _create(self, collection: str, whole: Mapping[str, Any], preconditions: Preconditions) -> Stored:
        if not self.rights.may(collection, Action.INSERT):
            raise forbidden()
        if preconditions.match is not None:
            raise failed("If-Match names a record, and this may only make new ones.")
        await self._require_collection(collection)
        try:
            return await self._insert(collection, whole)
        except DuplicateKeyError as error:
            if not is_id_taken(error):
                raise await self._conflict(collection, error) from error
            raise (failed("There is a record already.") if preconditions.create_only else forbidden()) from error

    async def _insert(self, collection: str, document: Mapping[str, Any]) -> Stored:
        await self._connection.run(self._connection.collection(collection).insert_one, dict(document))
        raw = bson.encode(document)
        return Stored(raw=raw, shown=self.rights.shows(collection, decode(raw)), created=True)

    async def _upsert(self, collection: str, key: Any, whole: Mapping[str, Any], *, insert: bool) -> Stored:
        table = self._connection.collection(collection)
        filter_ = self.rights.guarded({"_id": equals(key)}, "write")
        for last in (False, True):
            try:
                before = await self._connection.run(
                    table.find_one_and_update, filter_, self._replacement(whole), upsert=insert,
                    return_document=ReturnDocument.BEFORE,
                )  # fmt: skip
                break
            except DuplicateKeyError as error:
                # Another request has created it at this moment: the second try replaces it, or finds it forbidden.
                if not is_id_taken(error):
                    raise await self._conflict(collection, error) from error
                if last:
                    raise forbidden() from error
            except OperationFailure as error:
                quotable = await self._quotable(collection, key)
                if (problem := problem_of(error, wrote=True, quotable=quotable)) is None:
                    raise
                raise problem from error
        if before is None and not insert:
            raise await self._absent(collection, key)
        raw = bson.encode(whole if before is None else self._keeping(before.raw, whole))
        return Stored(raw=raw, shown=self.rights.shows(collection, decode(raw)), created=before is None)

    async def _quotable(self, collection: str, key: Any) -> bool:
        """Whether a message may quote the stored record: there is none, or the principal may read it."""
        record = await self._connection.run(self._connection.collection(collection).find_one, {"_id": equals(key)})
        return record is None or self.rights.shows(collection, decode(record.raw))

    async def _put_if(
        self, collection: str, key: Any, whole: Mapping[str, Any], preconditions: Preconditions, *, insert: bool
    ) -> Stored:
        for last in (False, True):
            try:
                return await self.change(
                    collection, key, lambda before, _: self._keeping(before, whole), preconditions=preconditions,
                    mentions_rules=self.rights.mentions_rules(whole),
                )  # fmt: skip
            except Problem as problem:
                if problem.status != 404 or not insert:
                    raise
                preconditions.require(None)
            try:
                return await self._create(collection, whole, preconditions)
            except Problem as problem:
                # Another request has created it at this moment: the second try replaces it, or finds it forbidden.
                if last or problem.status != 403:
                    raise
        raise AssertionError("the second try returns or raises")

    def _keeping(self, before: bytes, whole: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of _replacement() for a record."""
        known = decode(before)
        field = self._access.record_acl
        kept = {field: known[field]} if field is not None and field not in whole and field in known else {}
        return {**whole, "_id": known["_id"], **kept}

    def _replacement(self, whole: Mapping[str, Any]) -> list[Document]:
        """Return an update that replaces the record, except its `_id` and, if `whole` does not mention them, its rules."""
        field = self._access.record_acl
        kept = {"_id": "$_id"} | ({field: f"${field}"} if field is not None and field not in whole else {})
        return [{"$replaceWith": {"$mergeObjects": [{"$literal": whole}, kept]}}]
