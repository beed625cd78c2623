"""Inserts as a driver sends them (OP_MSG, session, retryable write), made beforehand so that sending one takes microseconds.

A driver in Python takes 200 us of a core for an insert. The whole way to the notification takes five times as much of two cores.
mongod does the same for these as for a driver's: https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

import bson
from bson import Binary, Int64
from pymongo.uri_parser import parse_uri

_HEADER: Final = Struct("<iiii")
_INT32: Final = Struct("<i")
_INT64: Final = Struct("<q")
_OP_MSG: Final = 2013
_SESSION: Final = b"\x05id\0\x10\0\0\0\x04"
_NUMBER: Final = b"\x12txnNumber\0"
_BODY_AT: Final = _HEADER.size + 4 + 1
"""Behind the flags and the kind of the section."""


class Insert:
    """An `insert` of these encoded documents. Which session it belongs to is written into it when it is sent."""

    def __init__(self, namespace: str, documents: Sequence[bytes]) -> None:
        database, _, collection = namespace.partition(".")
        session = {"id": Binary(bytes(16), 4)}
        command = {"insert": collection, "ordered": False, "lsid": session, "txnNumber": Int64(0), "$db": database}
        body, content = bson.encode(command), b"".join([b"documents\0", *documents])
        flags, kinds = b"\0\0\0\0", (b"\0", b"\1")
        message = b"".join([flags, kinds[0], body, kinds[1], _INT32.pack(len(content) + _INT32.size), content])
        self.message = bytearray(_HEADER.pack(len(message) + _HEADER.size, 0, 0, _OP_MSG) + message)
        self.session_at = self.message.index(_SESSION, _BODY_AT) + len(_SESSION)
        self.number_at = self.message.index(_NUMBER, _BODY_AT) + len(_NUMBER)
        self.documents = len(documents)


class InsertConnection:
    """A connection with a session of its own: one insert at a time."""

    def __init__(self, mongo_url: str) -> None:
        """To the first server that the URL names, which must be the primary."""
        self.socket = socket.create_connection(parse_uri(mongo_url)["nodelist"][0], timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._session = uuid.uuid4().bytes
        self._sent = 0

    def send(self, insert: Insert) -> None:
        self._sent += 1
        message = insert.message
        message[insert.session_at : insert.session_at + len(self._session)] = self._session
        _INT64.pack_into(message, insert.number_at, self._sent)
        self.socket.sendall(message)

    def reply(self) -> bytes:
        """Of the insert that was sent, undecoded; waits for it."""
        (length,) = _INT32.unpack(self._exactly(_INT32.size))
        return self._exactly(length - _INT32.size)

    def _exactly(self, size: int) -> bytes:
        data = self.socket.recv(size, socket.MSG_WAITALL)
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("mongod closed the connection")
            data += more
        return data

    def close(self) -> None:
        self.socket.close()


def require_inserted(reply: bytes, documents: int) -> None:
    """Raises RuntimeError unless all documents of an insert were inserted."""
    answer: dict[str, Any] = bson.decode(reply[_BODY_AT - _INT32.size :])
    if answer["ok"] != 1 or answer["n"] != documents:
        raise RuntimeError(f"an insert of {documents} documents failed: {answer}")
