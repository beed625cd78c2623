"""Double of a Kafka cluster: two brokers that speak ApiVersions, Metadata, ListOffsets and Fetch over real sockets.

The messages are encoded by the client library's own schemas, so the double shares the library's reading of the protocol. Batches
are kept as they were appended: a fetch from the middle of a batch returns the whole batch, as a broker does.
"""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.record.memory_records import MemoryRecordsBuilder

_VERSIONS: Final = {
    ApiVersionsRequest: (0, 2),
    MetadataRequest: (0, 5),
    ListOffsetsRequest: (1, 3),
    FetchRequest: (4, 6),
}
_EARLIEST: Final = -2
_OFFSET_OUT_OF_RANGE: Final = 1
_UNKNOWN_TOPIC: Final = 3
_NOT_LEADER: Final = 6
GZIP: Final = 1


class Batch(NamedTuple):
    """Batch of records: the offsets of its first record and after its last one, and its encoded bytes."""

    first: int
    end: int
    content: bytes


class Partition:
    """Log of one partition, and the broker that leads it."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.start = 0
        self.leader = 0

    @property
    def end(self) -> int:
        """Offset after the last record."""
        return self.batches[-1].end if self.batches else self.start

    def after(self, offset: int) -> bytes:
        """Return the batches with records from an offset on."""
        return b"".join(batch.content for batch in self.batches if batch.end > max(offset, self.start))


class KafkaDouble:
    """Cluster with one topic.

    errors: codes that brokers have answered to fetches.
    cut_after: bytes of the next answer with records after which the connection is cut; None: no cut.
    """

    def __init__(self, topic: str, partitions: int) -> None:
        self.topic = topic
        self.partitions = [Partition() for _ in range(partitions)]
        self.ports: list[int] = []
        self.errors: list[int] = []
        self.cut_after: int | None = None
        self.cuts = 0
        self._changed = threading.Condition()

    @property
    def url(self) -> str:
        """Address of the first broker; it names the others."""
        return f"kafka://127.0.0.1:{self.ports[0]}"

    def append(self, partition: int, values: Sequence[bytes | None], *, compression: int = 0) -> None:
        """Append a batch of records."""
        log = self.partitions[partition]
        builder = MemoryRecordsBuilder(magic=2, compression_type=compression, batch_size=1 << 24)
        for value in values:
            builder.append(timestamp=1_700_000_000_000, key=b"k", value=value, headers=[("h", b"1")])
        builder.close()
        with self._changed:
            content = struct.pack(">q", log.end) + bytes(builder.buffer())[8:]  # no checksum covers the first offset
            log.batches.append(Batch(log.end, log.end + len(values), content))
            self._changed.notify_all()

    def drop_before(self, partition: int, offset: int) -> None:
        """Drop records, as retention does."""
        with self._changed:
            log = self.partitions[partition]
            log.start, end = offset, log.end
            log.batches = [batch for batch in log.batches if batch.end > offset] or [Batch(end, end, b"")]

    def add_partition(self) -> None:
        """Add a partition to the topic."""
        with self._changed:
            self.partitions.append(Partition())

    def answer(self, node: int, request: Any) -> Any:
        """Return the response to a request that a broker has received."""
        match request:
            case ApiVersionsRequest():
                keys = [
                    ApiVersionsResponse.ApiVersion(api_key=kind.API_KEY, min_version=least, max_version=most)
                    for kind, (least, most) in _VERSIONS.items()
                ]
                return ApiVersionsResponse(error_code=0, api_keys=keys, throttle_time_ms=0)
            case MetadataRequest():
                return self._metadata(request)
            case ListOffsetsRequest():
                return self._offsets(node, request)
            case _:
                return self._fetched(node, request)

    def _metadata(self, request: Any) -> Any:
        names = [self.topic] if request.topics is None else [topic.name for topic in request.topics]
        kind = MetadataResponse.MetadataResponseTopic
        topics = [
            kind(
                error_code=0 if name == self.topic else _UNKNOWN_TOPIC,
                name=name,
                is_internal=False,
                partitions=[
                    kind.MetadataResponsePartition(
                        error_code=0,
                        partition_index=number,
                        leader_id=log.leader,
                        replica_nodes=[0, 1],
                        isr_nodes=[0, 1],
                        offline_replicas=[],
                    )
                    for number, log in enumerate(self.partitions if name == self.topic else [])
                ],
            )
            for name in names
        ]
        brokers = [
            MetadataResponse.MetadataResponseBroker(node_id=node, host="127.0.0.1", port=port, rack=None)
            for node, port in enumerate(self.ports)
        ]
        return MetadataResponse(
            throttle_time_ms=0, brokers=brokers, cluster_id="double", controller_id=0, topics=topics
        )

    def _offsets(self, node: int, request: Any) -> Any:
        kind = ListOffsetsResponse.ListOffsetsTopicResponse
        topics = []
        for topic in request.topics:
            partitions = []
            for place in topic.partitions:
                log = self.partitions[place.partition_index]
                error = 0 if log.leader == node else _NOT_LEADER
                offset = -1 if error else log.start if place.timestamp == _EARLIEST else log.end
                partitions.append(
                    kind.ListOffsetsPartitionResponse(
                        partition_index=place.partition_index, error_code=error, timestamp=-1, offset=offset
                    )
                )
            topics.append(kind(name=topic.name, partitions=partitions))
        return ListOffsetsResponse(throttle_time_ms=0, topics=topics)

    def _fetched(self, node: int, request: Any) -> Any:
        asked = [(topic.topic, place) for topic in request.topics for place in topic.partitions]
        with self._changed:
            self._changed.wait_for(
                lambda: any(
                    self.partitions[place.partition].end != place.fetch_offset
                    or self.partitions[place.partition].leader != node
                    for _, place in asked
                ),
                timeout=request.max_wait_ms / 1_000,
            )
            kind = FetchResponse.FetchableTopicResponse
            partitions = []
            for _, place in asked:
                log = self.partitions[place.partition]
                error = 0
                if log.leader != node:
                    error = _NOT_LEADER
                elif not log.start <= place.fetch_offset <= log.end:
                    error = _OFFSET_OUT_OF_RANGE
                if error:
                    self.errors.append(error)
                partitions.append(
                    kind.PartitionData(
                        partition_index=place.partition,
                        error_code=error,
                        high_watermark=log.end,
                        last_stable_offset=log.end,
                        log_start_offset=log.start,
                        aborted_transactions=[],
                        records=b"" if error else log.after(place.fetch_offset),
                    )
                )
            return FetchResponse(throttle_time_ms=0, responses=[kind(topic=self.topic, partitions=partitions)])


class _Broker(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, double: KafkaDouble, node: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.double = double
        self.node = node
        self.connections: list[socket.socket] = []


class _Connection(socketserver.BaseRequestHandler):
    server: _Broker

    def handle(self) -> None:
        self.server.connections.append(self.request)
        double = self.server.double
        with self.request.makefile("rb") as file:
            while len(size := file.read(4)) == 4:
                payload = file.read(struct.unpack(">i", size)[0])
                key, version, correlation = struct.unpack(">hhi", payload[:8])
                kind = next(kind for kind in _VERSIONS if key == kind.API_KEY)
                if version > _VERSIONS[kind][1]:
                    assert kind is ApiVersionsRequest  # the client tries its newest version first
                    response, version = ApiVersionsResponse(error_code=35, api_keys=[]), 0
                else:
                    response = double.answer(self.server.node, kind[version].decode(payload, header=True))
                response.API_VERSION = version
                response.with_header(correlation_id=correlation)
                content = bytes(response.encode(header=True, framed=True))
                has_records = kind is FetchRequest and any(
                    place.records for topic in response.responses for place in topic.partitions
                )
                if has_records and double.cut_after is not None:
                    cut, double.cut_after = double.cut_after, None
                    double.cuts += 1
                    self.request.sendall(content[:cut])
                    return
                try:
                    self.request.sendall(content)
                except OSError:
                    return


@contextmanager
def cluster(topic: str = "notes", partitions: int = 2) -> Iterator[KafkaDouble]:
    """Run a double with two brokers."""
    double = KafkaDouble(topic, partitions)
    brokers = [_Broker(double, node) for node in range(2)]
    threads = [threading.Thread(target=broker.serve_forever, args=(0.02,)) for broker in brokers]
    double.ports = [broker.server_address[1] for broker in brokers]
    for thread in threads:
        thread.start()
    try:
        yield double
    finally:
        for broker in brokers:
            broker.shutdown()
            for connection in broker.connections:
                connection.close()
            broker.server_close()
        for thread in threads:
            thread.join()
