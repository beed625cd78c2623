"""Probe that asks over HTTP and observes from outside when an answer changes, as an unprivileged observer can."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from quaestor.errors import DependencyError
from quaestor.testing.served_from import ServedFrom, served_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One response.

    at_ns: time of its arrival, in wall-clock ns.
    worker: app worker that sent or made it.
    """

    status: int
    body: bytes
    headers: Mapping[str, str]
    at_ns: int

    @property
    def served_from(self) -> ServedFrom:
        """Part of the stack that answered."""
        return served_from(self.headers)

    @property
    def worker(self) -> str:
        """App worker that answered."""
        return self.headers.get("x-worker", "")

    def json(self) -> Any:
        """Body, decoded."""
        return json.loads(self.body)


class Probe:
    """One kept connection to one server. An app worker keeps the connection it accepted, so a probe asks one worker.

    host: sent as Host; with the same for app and Varnish, both are asked for the same page.
    """

    def __init__(self, url: str, *, host: str) -> None:
        parts = urlsplit(url)
        self._headers = {"Host": host}
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)

    def get(self, path: str) -> Answer:
        """Ask for a path. Raises DependencyError if no server answers."""
        try:
            try:
                return self._get(path)
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                self._connection.close()  # the other side had closed the idle connection: ask once more
                return self._get(path)
        except (OSError, http.client.HTTPException) as error:
            raise DependencyError(f"GET {path} got no answer: {error}") from error

    def _get(self, path: str) -> Answer:
        self._connection.request("GET", path, headers=self._headers)
        response = self._connection.getresponse()
        body = response.read()
        at_ns = time.time_ns()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(status=response.status, body=body, headers=headers, at_ns=at_ns)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def one_probe_a_worker(url: str, workers: int, *, host: str, attempts: int = 200) -> list[Probe]:
    """Probes, one for every worker. Connections are opened until each worker has accepted one.

    Raises DependencyError if not all workers answer.
    """
    probes: dict[str, Probe] = {}
    for _ in range(attempts):
        probe = Probe(url, host=host)
        worker = probe.get("/airlines").worker
        if worker in probes:
            probe.close()
        else:
            probes[worker] = probe
        if len(probes) == workers:
            return list(probes.values())
    raise DependencyError(f"only {len(probes)} of {workers} app workers answered in {attempts} connections")


def until(
    probe: Probe, path: str, holds: Callable[[Answer], bool], *, timeout_s: float, every_s: float = 0.0
) -> Answer | None:
    """Ask repeatedly, and return the first answer for which `holds` is true, or None after the time."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        answer = probe.get(path)
        if holds(answer):
            return answer
        if every_s:
            time.sleep(every_s)
    return None


class Watch:
    """Watch of several probes at once, each in a thread, for the first answer that holds. Begin it before writing."""

    def __init__(
        self, probes: Sequence[Probe], path: str, holds: Callable[[Answer], bool], *, timeout_s: float
    ) -> None:
        self._answers: list[Answer | None] = [None] * len(probes)
        self._threads = [
            threading.Thread(target=self._watch, args=(at, probe, path, holds, timeout_s), daemon=True)
            for at, probe in enumerate(probes)
        ]
        for thread in self._threads:
            thread.start()

    def _watch(self, at: int, probe: Probe, path: str, holds: Callable[[Answer], bool], timeout_s: float) -> None:
        with suppress(DependencyError):
            self._answers[at] = until(probe, path, holds, timeout_s=timeout_s, every_s=0.0005)

    def wait(self) -> list[Answer | None]:
        """Answers that the probes saw, in their order; None where nothing held in time."""
        for thread in self._threads:
            thread.join()
        return self._answers
