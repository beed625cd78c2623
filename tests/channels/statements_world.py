"""Interpreter over a folder, as the admin API and the command line build it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quaestor.channels.administration import QUERY_LIMIT_S, Channels, channels_of
from quaestor.channels.answers import Answer
from quaestor.clock import Clock, system_clock
from quaestor.settings.continuous import ContinuousSettings

POLICE = """
CREATE TYPE Tweet AS (tid bigint, area_code string, text string, location point, hateful_flag boolean);
CREATE ACTIVE DATASET Tweets(Tweet) PRIMARY KEY tid;
CREATE ACTIVE DATASET Officers(oid bigint, location point) PRIMARY KEY oid;
CREATE DATASET Schools(sid bigint, area_code string, name string) CLOSED PRIMARY KEY sid;
CREATE BROKER station AT "https://93.184.216.34/results";
CREATE CONTINUOUS CHANNEL Local(area string) PERIOD 10 SECONDS FROM BEGINNING {
  SELECT t.tid, t.text FROM Tweets t WHERE is_new(t) AND t.area_code = area
};
"""


class StatementsWorld:
    """Channels of a folder, through statements."""

    def __init__(
        self, folder: Path, *, clock: Clock = system_clock, query_limit_s: float = QUERY_LIMIT_S, **settings: Any
    ) -> None:
        self.folder = folder
        wanted = ContinuousSettings(continuous_folder=str(folder), **settings)
        self.channels: Channels = channels_of(wanted, clock=clock, query_limit_s=query_limit_s)

    def run(self, text: str, *, user: str = "", **values: Any) -> list[Answer]:
        """Execute statements."""
        return self.channels.interpreter.run(text, user=user, values=values)

    def texts(self, text: str, *, user: str = "") -> list[str]:
        """Execute statements; return their sentences."""
        return [answer.text for answer in self.run(text, user=user)]

    def rows(self, text: str, **values: Any) -> list[tuple[Any, ...]]:
        """Execute one statement; return its rows."""
        (answer,) = self.run(text, **values)
        return list(answer.rows)

    def police(self) -> None:
        """Create the datasets, the broker and the channel of these tests."""
        self.run(POLICE)
