"""Settings of the officers' application."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

CHANNEL: Final = "NearbyAlerts"
"""Name of the channel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficersSettings:
    """Settings of the application.

    url: own URL, to which the channel sends its notifications.
    moves: whether officers move and tweets come by themselves.
    """

    folder: str
    url: str
    moves: bool
    seed: int = 7

    def to_env(self) -> dict[str, str]:
        """Environment that passes the settings to the process."""
        return {"DEMO_OFFICERS": json.dumps(asdict(self))}

    @classmethod
    def from_env(cls, environment: Mapping[str, str]) -> OfficersSettings:
        """Settings from the environment of the process."""
        return cls(**json.loads(environment["DEMO_OFFICERS"]))
