"""Source of a Kafka topic: committed records of all its partitions, by their offsets. Deletions are left out.

The offsets lie with the records of the dataset. Kafka itself keeps none, so there is no consumer group.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, LogTruncationError, OffsetOutOfRangeError
from kafka.net.compat import KafkaNetClient

from quaestor.channels.feeds.records import Incoming, SourceLostError, from_beginning
from quaestor.errors import ConfigurationError, DependencyError

_WAIT_MS: Final = 200
_TIMEOUT_MS: Final = 5_000
_FETCHED_BYTES: Final = 8 << 20
"""Bytes that a broker sends at a time, unless a single record is longer."""
_MECHANISMS: Final = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})
_OPTIONS: Final = {
    "allow_auto_create_topics": False,
    "auto_offset_reset": "none",
    "bootstrap_timeout_ms": _TIMEOUT_MS,
    "fetch_max_bytes": _FETCHED_BYTES,
    "fetch_max_wait_ms": _WAIT_MS,
    "isolation_level": "read_committed",
    "metadata_max_age_ms": 60_000,
    "metrics_enabled": False,
    "request_timeout_ms": _TIMEOUT_MS,
}

Positions = dict[int, int]
"""Offset of the next record of each partition."""


class _Offset(NamedTuple):
    """Offset of a feed: positions before the batch, and after it."""

    before: Positions
    after: Positions


class KafkaSource:
    """Topic of a Kafka cluster. The value of a record is a JSON object; its key and headers are left out.

    url: `kafka://host:port,...`, or `kafkas://user:password@host:port?mechanism=SCRAM-SHA-512` with TLS; PLAIN by default.
    start: `beginning` or `now`, for a feed that has written nothing yet.

    Raises ConfigurationError for a wrong url or start.
    """

    def __init__(self, url: str, topic: str, *, start: str = "beginning") -> None:
        self._from_beginning = from_beginning(start)
        self._topic = topic
        self._options = {**_OPTIONS, **connection(url)}
        self._client: Any = None
        self._reached: Positions | None = None

    def begin(self) -> str:
        """See OffsetSource."""
        try:
            positions = self._beginning(self._partitions(), from_beginning=self._from_beginning)
        except (KafkaError, OSError) as error:
            raise self._failure(error) from error
        return _encoded(positions, positions)

    def read(self, after: str, most: int) -> Sequence[Incoming]:
        """See OffsetSource. An offset has the positions of all partitions before and after its batch."""
        wanted = _decoded(after or self.begin()).after
        try:
            positions = self._placed(wanted)
            polled = self._client.poll(timeout_ms=_WAIT_MS, max_records=most)
            records = self._records(polled, positions)
        except (KafkaError, OSError) as error:
            raise self._failure(error) from error
        if records:
            self._reached = _decoded(records[-1].offset).after
        return records

    def again(self, offset: str) -> Sequence[Incoming]:
        """See RepeatableSource."""
        before, upto = _decoded(offset)
        missing = {partition: end for partition, end in upto.items() if end > before[partition]}
        polled: dict[Any, list[Any]] = {}
        deadline_s = time.monotonic() + _TIMEOUT_MS / 1_000
        try:
            self._stand_at({partition: before[partition] for partition in missing})
            while missing:
                if time.monotonic() > deadline_s:
                    raise DependencyError(f"the topic {self._topic!r} did not send a known batch again")
                for place, records in self._client.poll(timeout_ms=_WAIT_MS).items():
                    polled.setdefault(place, []).extend(row for row in records if row.offset < upto[place.partition])
                missing = {partition: end for partition, end in missing.items() if self._position(partition) < end}
        except (KafkaError, OSError) as error:
            raise self._failure(error) from error
        return self._records(polled, before)

    def close(self) -> None:
        """See OffsetSource."""
        client, self._client = self._client, None
        if client is not None:
            client.close(autocommit=False, timeout_ms=_TIMEOUT_MS)

    def _partitions(self) -> set[int]:
        known: set[int] | None = self._connected().partitions_for_topic(self._topic)
        if not known:
            raise DependencyError(f"there is no topic {self._topic!r}: create it, or grant the right to describe it")
        return known

    def _placed(self, wanted: Positions) -> Positions:
        """Let the client stand at positions, and return those of all partitions."""
        known = self._partitions()
        if self._reached != wanted or not known <= wanted.keys():
            wanted = {**self._beginning(known - wanted.keys(), from_beginning=True), **wanted}
            self._stand_at(wanted)
            self._reached = wanted
        return wanted

    def _stand_at(self, positions: Positions) -> None:
        """Let the client read these partitions, from these positions on."""
        client, self._reached = self._connected(), None
        client.assign([self._place(partition) for partition in positions])
        for partition, position in positions.items():
            client.seek(self._place(partition), position)

    def _connected(self) -> Any:
        if self._client is None:
            self._client, self._reached = _client(self._options), None
        return self._client

    def _place(self, partition: int) -> Any:
        return TopicPartition(self._topic, partition)

    def _position(self, partition: int) -> int:
        return int(self._client.position(self._place(partition)))

    def _beginning(self, partitions: Collection[int], *, from_beginning: bool) -> Positions:
        if not partitions:
            return {}
        client = self._connected()
        offsets = client.beginning_offsets if from_beginning else client.end_offsets
        places = [self._place(partition) for partition in partitions]
        return {place.partition: offset for place, offset in offsets(places, timeout_ms=_TIMEOUT_MS).items()}

    def _records(self, polled: Mapping[Any, Sequence[Any]], before: Positions) -> list[Incoming]:
        """Return records in the order of partitions and offsets, which is the same each time."""
        records, after = [], dict(before)
        for place in sorted(polled):
            for record in polled[place]:
                if record.value is not None:
                    after[place.partition] = record.offset + 1
                    records.append(Incoming(record.value, _encoded(before, after)))
        return records

    def _failure(self, error: Exception) -> DependencyError:
        self.close()
        if isinstance(error, OffsetOutOfRangeError | LogTruncationError):
            return SourceLostError(f"records of the topic {self._topic!r} were dropped before they were read: {error}")
        return DependencyError(f"the topic {self._topic!r} could not be read: {error}")


def _client(options: Mapping[str, Any]) -> Any:
    """Return a client. One that cannot connect ends its thread, which the library leaves running."""
    begun: list[Any] = []

    def begin(**given: Any) -> Any:
        begun.append(KafkaNetClient(**given))
        return begun[-1]

    try:
        return KafkaConsumer(kafka_client=begin, **options)
    except BaseException:
        for network in begun:
            network.close()
        raise


def connection(url: str) -> dict[str, Any]:
    """Return a url as options of a client. Raises ConfigurationError."""
    parts = urlsplit(url)
    servers = parts.netloc.rpartition("@")[2].split(",")
    if parts.scheme not in ("kafka", "kafkas") or not all(servers):
        raise ConfigurationError(
            "the url of a Kafka cluster is kafka://host:port,... or kafkas://user:password@host:port"
        )
    has_tls = parts.scheme == "kafkas"
    options = {"bootstrap_servers": servers, "security_protocol": "SSL" if has_tls else "PLAINTEXT"}
    if "@" not in parts.netloc:
        return options
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    mechanism = parse_qs(parts.query).get("mechanism", ["PLAIN"])[0]
    if mechanism not in _MECHANISMS:
        raise ConfigurationError(f"the mechanism is {mechanism!r}: write {', '.join(sorted(_MECHANISMS))}")
    if not has_tls:
        raise ConfigurationError("a password needs TLS: write kafkas://")
    return options | {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": unquote(user),
        "sasl_plain_password": unquote(password),
    }


def _encoded(before: Positions, after: Positions) -> str:
    return json.dumps([before, after], separators=(",", ":"))


def _decoded(offset: str) -> _Offset:
    before, after = json.loads(offset)
    return _Offset(
        {int(key): value for key, value in before.items()}, {int(key): value for key, value in after.items()}
    )
