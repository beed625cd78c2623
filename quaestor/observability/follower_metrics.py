"""Metrics of followed answers."""

from __future__ import annotations

from quaestor.observability.families import Families
from quaestor.observability.vocabularies import FOLLOWER_ENDS, FOLLOWER_EVENTS, FOLLOWER_REFUSALS


class FollowerMetrics:
    """Followed answers, and the clients that follow them.

    answers: followed ones.
    followers: streams and long polls.
    reads: of followed answers, out of the cache or by a run of the handler.
    events: sent to streams, by their kind.
    refused: clients, by the limit.
    ended: streams and long polls, by the reason.
    """

    def __init__(self, families: Families) -> None:
        self.answers = families.gauge("followed_answers", "answers that clients of this process follow")
        self.followers = families.gauge("followers", "streams and long polls of followed answers")
        self.reads = families.counter("followed_reads", "reads of followed answers, out of the cache or by the handler")
        self.events = families.counters("follower_events", "events that streams were sent", kind=FOLLOWER_EVENTS)
        self.refused = families.counters(
            "followers_refused", "streams and polls that were refused", limit=FOLLOWER_REFUSALS
        )
        self.ended = families.counters("followers_ended", "streams and polls that have ended", reason=FOLLOWER_ENDS)
