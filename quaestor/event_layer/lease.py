"""Lease that one process of a deployment holds at a time."""

from __future__ import annotations

import os
import socket
import uuid

from quaestor.errors import EventLayerError
from quaestor.ports import LeasingLayer


class Lease:
    """Lease of one name. Use from one thread.

    layer: closed at the end.
    lease_s: time after which the lease of a killed process ends.
    """

    def __init__(self, layer: LeasingLayer, name: str, *, lease_s: float) -> None:
        self._layer = layer
        self._name = name
        self._lease_ms = int(lease_s * 1000)
        self._holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"

    def held(self) -> bool:
        """Take or prolong the lease; return whether this process has it. Raises EventLayerError."""
        return self._layer.lease(self._name, self._holder, lease_ms=self._lease_ms)

    def end(self) -> None:
        """End the lease, so that another process has it at once. The lease ends by itself if the event layer does not answer."""
        try:
            self._layer.release(self._name, self._holder)
        except EventLayerError:
            pass
        finally:
            self._layer.close()
