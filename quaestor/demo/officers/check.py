"""Check of the officers for `quaestor demo --once`: delivered alerts are those of a direct computation, pair by pair."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import httpx

from quaestor.demo.officers.city import City, Tweet, alerts, positions
from quaestor.demo.officers.settings import CHANNEL
from quaestor.demo.steps import Steps

ROUNDS: Final = 3
TWEETS: Final = 80
PATIENCE_S: Final = 120.0
_EVERY_S: Final = 0.1


class OfficersCheck:
    """Check on a running application whose officers move only by its feeds.

    url: of the application.
    """

    def __init__(self, url: str, steps: Steps) -> None:
        self._http = httpx.Client(base_url=url, timeout=PATIENCE_S)
        self._steps = steps
        self._city = City(seed=20)

    def run(self) -> None:
        """Move officers and publish tweets in rounds, and compare what each subscriber has received."""
        with self._http:
            state = self._state()
            subscriptions = {entry["oid"]: entry["subscription"] for entry in state["officers"]}
            rounds = self._rounds()
            expected = [pair for tweets, places in rounds for pair in alerts(tweets, places)]
            followed = Counter(oid for oid, _ in expected).most_common(1)[0][0]
            stream = _Stream(self._http.base_url, subscriptions[followed])
            stream.start()
            for tweets, places in rounds:
                self._post("PositionFeed", positions(places))
                self._post("TweetFeed", [tweet.record() for tweet in tweets])
                self._await_run_after(time.time_ns() // 1_000)
            delivered = [pair for subscription in subscriptions.values() for pair in self._delivered(subscription)]
            self._steps.record(
                "officers hear of the hateful tweets near them: as a direct computation says, each once",
                sorted(delivered) == sorted(expected) and bool(expected),
                {"delivered": len(delivered), "expected": len(expected)},
            )
            own = sorted(tid for oid, tid in expected if oid == followed)
            received = stream.received(len(own))
            self._steps.record(
                "an EventSource receives the alerts of its officer",
                sorted(received) == own,
                {"officer": followed, "received": len(received), "expected": len(own)},
            )
            rows = self._state()["rows"]
            self._steps.record(
                "one stored row serves all followers of an officer",
                rows == len(expected),
                {"rows": rows, "alerts": rows * state["followers"]},
            )

    def _rounds(self) -> list[tuple[list[Tweet], dict[int, tuple[float, float]]]]:
        """Return tweets and the places of the officers at that time, round by round."""
        rounds = []
        for _ in range(ROUNDS):
            self._city.move()
            rounds.append((self._city.tweets(TWEETS), dict(self._city.places)))
        return rounds

    def _state(self) -> dict[str, Any]:
        return dict(self._http.get("/state").raise_for_status().json())

    def _post(self, feed: str, records: Sequence[dict[str, Any]]) -> None:
        """Post records. A feed that begins refuses requests for a moment."""
        body = "\n".join(map(json.dumps, records))
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            answer = self._http.post(f"/feeds/{feed}", content=body)
            if answer.status_code not in (404, 503) or time.monotonic() > deadline_s:
                break
            time.sleep(_EVERY_S)
        answer.raise_for_status()

    def _await_run_after(self, instant: int) -> None:
        """Wait for a run that began after an instant: it has seen all that was published before. Raises TimeoutError."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self._http.get(f"/channels/{CHANNEL}/newest").raise_for_status().json()["newest"] <= instant:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"no run of {CHANNEL} within {PATIENCE_S:.0f} s")
            time.sleep(_EVERY_S)

    def _delivered(self, subscription: str) -> list[tuple[int, int]]:
        """Return (officer, tweet) of all results of a subscription, page by page."""
        delivered, after, complete = [], 0, False
        while not complete:
            path = f"/channels/{CHANNEL}/subscriptions/{subscription}/results?after={after}"
            page = self._http.get(path).raise_for_status().json()
            delivered += _pairs(page)
            after, complete = page["next"], page["complete"]
        return delivered


class _Stream(threading.Thread):
    """Stream of events of one subscription, read in a thread."""

    def __init__(self, url: httpx.URL, subscription: str) -> None:
        super().__init__(daemon=True)
        self._client = httpx.Client(base_url=url, timeout=PATIENCE_S)
        self._path = f"/channels/{CHANNEL}/subscriptions/{subscription}/results"
        self._tids: list[int] = []
        self._news = threading.Condition()

    def run(self) -> None:
        with (
            suppress(httpx.HTTPError),
            self._client,
            self._client.stream("GET", self._path, headers={"accept": "text/event-stream"}) as answer,
        ):
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    with self._news:
                        self._tids += [tid for _, tid in _pairs(json.loads(line.removeprefix("data: ")))]
                        self._news.notify()

    def received(self, number: int) -> list[int]:
        """Return the tweets of all events, when there are so many, or the time is over."""
        with self._news:
            self._news.wait_for(lambda: len(self._tids) >= number, PATIENCE_S)
            return list(self._tids)


def _pairs(page: dict[str, Any]) -> list[tuple[int, int]]:
    return [
        (entry["result"]["oid"], entry["result"]["tid"])
        for run in page["runs"]
        for entry in run["results"]
        if "result" in entry
    ]
