"""The links that fail on command: each way of failing is what it says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from benchmarks.setups.faults.proxy import Link, Links
from quaestor.testing.servers import HOST

PATIENCE_S = 10.0
SILENCE_S = 0.3
"""How long a link is listened to that must not say anything: too short can only let a fault through, never report one."""


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that echoes its input."""
    server = socket.create_server((HOST, 0))

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while data := connection.recv(1024):
                connection.sendall(data)

    def run() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

    threading.Thread(target=run, daemon=True).start()
    yield int(server.getsockname()[1])
    server.shutdown(socket.SHUT_RDWR)
    server.close()


@pytest.fixture
def link(links: Links, echo: int) -> Link:
    return links.to(echo)


def connect(link: Link) -> socket.socket:
    return socket.create_connection((HOST, link.port), timeout=PATIENCE_S)


def answered(connection: socket.socket, text: bytes = b"hello") -> bytes:
    connection.sendall(text)
    return connection.recv(1024)


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(SILENCE_S)
    try:
        return connection.recv(1024) == b"never"
    except TimeoutError:
        return True
    finally:
        connection.settimeout(PATIENCE_S)


def test_it_passes_what_it_is_given(link: Link) -> None:
    with connect(link) as connection:
        assert answered(connection) == b"hello"


def test_stalled_it_accepts_and_says_nothing_and_afterwards_what_was_held_back_arrives(link: Link) -> None:
    with connect(link) as old:
        assert answered(old) == b"hello"
        link.stall()
        old.sendall(b"held")
        with connect(link) as new:
            new.sendall(b"back")
            assert is_silent(old)
            assert is_silent(new)
            link.pass_()
            assert old.recv(1024) == b"held"
            assert new.recv(1024) == b"back"


def test_reset_it_ends_what_there_is_and_what_comes(link: Link) -> None:
    with connect(link) as old:
        assert answered(old) == b"hello"
        link.reset()
        for connection in (old, connect(link)):
            with connection, suppress(ConnectionError):
                assert answered(connection) == b""
    link.pass_()
    with connect(link) as again:
        assert answered(again) == b"hello"


def test_lost_connections_stay_silent_for_ever_while_new_ones_work(link: Link) -> None:
    with connect(link) as old:
        assert answered(old) == b"hello"
        link.lose()
        old.sendall(b"into the void")
        with connect(link) as new:
            assert answered(new) == b"hello"
        assert is_silent(old)


def test_delayed_it_passes_everything_in_order(link: Link) -> None:
    link.delay(0.02)
    with connect(link) as connection:
        assert [answered(connection, text) for text in (b"1", b"2")] == [b"1", b"2"]


def test_the_client_behind_a_connection_is_found_by_what_the_server_sees(link: Link) -> None:
    with connect(link) as connection:
        assert answered(connection) == b"hello"
        upstream = next(pair.upstream_port for pair in link._pairs)
        assert upstream is not None
        assert link.client_port(upstream) == connection.getsockname()[1]
        assert link.client_port(1) is None
