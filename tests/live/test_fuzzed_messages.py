"""Fuzzed messages on real sockets: each gets an answer or a documented close, nobody else notices, and nothing is left."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi import HTTPException
from hypothesis import example, given, settings
from hypothesis import strategies as st
from starlette.requests import Request
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from quaestor.live.websocket.answers import ANSWERS
from quaestor.live.websocket.limits import SocketLimits
from quaestor.rest.access import ALL, Access, CollectionAccess, Principal, Rule
from tests.live.hostile_messages import BAD_TEXT, FRAMES, LARGEST, Frame, repeated
from tests.live.site_state import left_of, measured, open_now, server_errors, tasks_of
from tests.live.socket_site import Json, Site, live_site
from tests.support import PATIENCE_S, becomes

# The site draws random numbers in its own thread, which Hypothesis takes for numbers of a strategy.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies"),
    pytest.mark.timeout(1_200),  # the search for the smallest failing message may take minutes
]
SUBSCRIPTIONS = 2
MOST_TASKS = 2 + SUBSCRIPTIONS
"""Tasks of one socket beside the reading one: one sends, one advances the cuts, and each subscription may change its group."""
SLOW = b'{"type": "subscribe", "id": "a", "bucket": "items", "query": "{\\"n\\": 77}"}'
"""A subscription to a query that nobody follows: the connection is reset before its answer."""
NO_SORT = json.dumps(
    {"type": "subscribe", "id": "a", "bucket": "items", "pipeline": '[{"$sort": null}]', "collation": {"locale": "de"}}
).encode()
"""A pipeline that is no pipeline, in a query that is recomputed."""
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def who(request: Request) -> Principal:
    """`Bearer ann:clerk` is ann with this role; `refused` is refused, and the lookup of `failing` breaks off."""
    name, _, role = request.headers.get("authorization", "").removeprefix("Bearer ").partition(":")
    if name == "refused":
        raise HTTPException(401, "no such token")
    if name == "failing":
        raise HTTPException(503, "the directory of users does not answer")
    return Principal(user=name or None, roles=frozenset({role} - {""}))


@dataclass(slots=True)
class Witness:
    """Client of another socket that follows one record.

    errors: exceptions that left the application.
    beats: the number of writes to the record.
    """

    connection: ClientConnection
    items: Any
    errors: list[str]
    beats: int = 0

    def hears_the_next_write(self) -> None:
        """Write to the record, and check that the next message is this write."""
        self.beats += 1
        self.items.update_one({"_id": "beat"}, {"$set": {"n": self.beats}})
        message = json.loads(self.connection.recv(PATIENCE_S))
        assert (message["type"], message["data"]) == ("match", {"_id": "beat", "n": self.beats, "witness": True})

    def is_alone_without_errors(self, site: Site) -> None:
        """Wait until no other socket is left, and check that no exception has left the application since the last check."""
        becomes(lambda: open_now(site) == (1, 1))
        becomes(lambda: tasks_with("run_asgi", site) == 1)  # of uvicorn: it logs an exception behind the endpoint's end
        errors = list(self.errors)
        self.errors.clear()
        assert errors == []


@pytest.fixture(scope="module")
def site(mongo_url: str) -> Iterator[Site]:
    access = Access(
        collections={"items": CollectionAccess(read=ALL), "books": CollectionAccess(read=Rule.of(allow=["role:clerk"]))}
    )
    limits = SocketLimits(
        message_bytes=LARGEST, messages_per_second=100_000, pipeline_stages=10, resume_s=1, lingering=1,
        subscriptions=SUBSCRIPTIONS,
    )  # fmt: skip
    with live_site(mongo_url, "fuzzed_messages", access=access, principal=who, limits=limits) as running:
        yield running


@pytest.fixture(scope="module")
def witness(site: Site) -> Iterator[Witness]:
    """One witness of the whole run. Behind it the site is as it was when the witness came."""
    items = site.database.items
    items.insert_many([{"_id": "beat", "n": 0, "witness": True}, {"_id": "still", "n": 1, "tags": ["x", "y"]}])
    with connect(site.url) as connection, server_errors() as errors:
        connection.send('{"type": "subscribe", "id": "a", "bucket": "items", "query": "{\\"witness\\": true}"}')
        assert json.loads(connection.recv(PATIENCE_S))["type"] == "result"
        witness = Witness(connection, items, errors)
        witness.hears_the_next_write()
        tasks = tasks_of(site)
        yield witness
        witness.is_alone_without_errors(site)
        becomes(lambda: not left_of(site, tasks))


def heard(connection: ClientConnection, mark: str) -> Iterator[Json]:
    """Messages up to the answer to a `ping`. Each is one that the protocol publishes."""
    connection.send(json.dumps({"type": "ping", "id": mark}))
    while True:
        message: Json = json.loads(connection.recv(PATIENCE_S))
        ANSWERS.validate_python(message)
        if (message["type"], message["id"]) == ("pong", mark):
            return
        yield message


def tasks_with(part: str, site: Site) -> int:
    """Number of tasks whose function has this part in its name."""
    return sum(number for name, number in tasks_of(site).items() if part in name)


def failures(site: Site) -> float:
    return measured(site, "service_failures_total", service="live-queries")


def answered(connection: ClientConnection, frames: Iterator[Frame]) -> None:
    """Send frames and check the answers to each, up to the first one that closes the socket."""
    for number, frame in enumerate(frames):
        connection.send(frame.data, text=frame.text)
        if frame.close_code is not None:
            with pytest.raises(ConnectionClosed) as closed:
                list(heard(connection, f"mark-{number}"))
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == frame.close_code
            return
        messages = list(heard(connection, f"mark-{number}"))
        errors = [message["error"] for message in messages if message["type"] == "error"]
        assert errors or not frame.is_malformed, frame
        statuses = {error["status"] for error in errors if "directory of users" not in error["message"]}
        assert all(status < 500 for status in statuses), (frame, errors)


@example(frames=[Frame(NO_SORT, True)], times=1)
@given(frames=FRAMES, times=st.sampled_from([1, 1, 1, 10]))
@settings(max_examples=100)
def test_every_message_has_an_answer_or_a_documented_close(
    site: Site, witness: Witness, frames: list[Frame], times: int
) -> None:
    """No frame is an internal error, leaves a task behind on the open socket, or is noticed by another client."""
    failed = failures(site)
    with connect(site.url) as hostile:
        answered(hostile, repeated(frames, times))
        witness.hears_the_next_write()
        becomes(
            lambda: tasks_with("SocketConnection.", site) <= MOST_TASKS, within_s=5
        )  # short, because Hypothesis repeats a failure
    assert failures(site) == failed


@example(frames=[Frame(SLOW, True), Frame(b"x" * (LARGEST + 1), True)], times=1)
@given(frames=FRAMES, times=st.sampled_from([1, 10]))
@settings(max_examples=60)
def test_a_client_that_breaks_off_in_the_midst_of_its_messages_leaves_nothing(
    site: Site, witness: Witness, frames: list[Frame], times: int
) -> None:
    """The client reads nothing, and its connection is reset while the endpoint works on its messages."""
    failed = failures(site)
    with connect(site.url) as hostile, suppress(ConnectionClosed, OSError):  # the endpoint may close the socket first
        for frame in repeated(frames, times):
            hostile.send(frame.data, text=frame.text)
        hostile.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        hostile.close_socket()
    witness.hears_the_next_write()
    witness.is_alone_without_errors(site)
    assert failures(site) == failed


def test_an_answer_that_comes_behind_the_end_of_the_socket_is_dropped(site: Site, witness: Witness) -> None:
    """The server reads bytes that are no text, and ends the socket, before the endpoint answers the message before them."""
    with connect(site.url) as hostile:
        hostile.protocol.send_text(b"no message")
        hostile.protocol.send_text(b"\xff")
        hostile.socket.sendall(b"".join(hostile.protocol.data_to_send()))  # the server reads both at once
        with pytest.raises(ConnectionClosed) as closed:
            hostile.recv(PATIENCE_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == BAD_TEXT
    witness.is_alone_without_errors(site)


def test_ended_cuts_leave_no_task(site: Site, witness: Witness) -> None:
    """A client switches cuts on and off again and again on one socket."""
    with connect(site.url) as hostile:
        for pair in range(20):
            for on in (True, False):
                hostile.send(json.dumps({"type": "cut", "on": on}))
                assert list(heard(hostile, f"{pair}")) == []
        becomes(lambda: tasks_with("SocketConnection.", site) <= MOST_TASKS)
