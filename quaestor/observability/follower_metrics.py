"""Metrics of followed answers."""

from __future__ import annotations

from quaestor.observability.families import Families
from quaestor.observability.vocabularies import FOLLOWER_ENDS, FOLLOWER_EVENTS, FOLLOWER_REFUSALS


class FollowerMetrics:
    """Metrics of followed answers, and of the clients that follow them.

    answers: number of followed answers.
    followers: number of streams and long polls.
    reads: reads of followed answers, from the cache or by a run of the handler.
    events: events sent to streams, by kind.
    refused: refused clients, by limit.
    ended: ended streams and long polls, by reason.
    """

    def __init__(self, families: Families) -> None:
        self.answers = families.gauge("followed_answers", "answers that clients of this process follow")
        self.followers = families.gauge("followers", "streams and long polls of followed answers")
        self.reads = families.counter("followed_reads", "reads of followed answers, from the cache or by the handler")
        self.events = families.counters("follower_events", "events sent to streams", kind=FOLLOWER_EVENTS)
        self.refused = families.counters("followers_refused", "refused streams and polls", limit=FOLLOWER_REFUSALS)
        self.ended = families.counters("followers_ended", "ended streams and polls", reason=FOLLOWER_ENDS)
