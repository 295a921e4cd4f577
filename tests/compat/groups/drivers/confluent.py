"""confluent-kafka's consumer as a member, with the classic or the consumer protocol."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from ...clients.base import TP, ClientError
from ...clients.confluent import REQUEST_TIMEOUT, RESET, client_error, translated
from ..members import Driver, Journal, Options, Read

PASSING = {KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}
AT_MOST = 500


class ConfluentDriver(Driver):
    def __init__(self, options: Options, journal: Journal) -> None:
        super().__init__(options, journal)
        self._consumer = Consumer(self._config() | self._protocol())
        self._consumer.subscribe(
            [options.pattern] if options.pattern else list(options.topics),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def _config(self) -> dict[str, Any]:
        options = self.options
        return {
            "bootstrap.servers": options.bootstrap_servers,
            "group.id": options.group,
            "client.id": options.client_id,
            "enable.auto.commit": options.commit == "auto",
            "auto.commit.interval.ms": 200,
            "auto.offset.reset": RESET[options.offset_reset],
            "topic.metadata.refresh.interval.ms": options.metadata_ms,
            "metadata.max.age.ms": options.metadata_ms,
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.max.ms": 500,
            "log_level": 2,
            **({"group.instance.id": options.instance_id} if options.instance_id else {}),
        }

    def _protocol(self) -> dict[str, Any]:
        return {
            "partition.assignment.strategy": self.options.assignor,
            "session.timeout.ms": self.options.session_ms,
            "heartbeat.interval.ms": self.options.heartbeat_ms,
            "max.poll.interval.ms": max(30_000, self.options.session_ms),
        }

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.journal.assigned(TP(p.topic, p.partition) for p in partitions)

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        if self.options.commit in ("handover", "each"):
            self._commit_or_tell()
        self.journal.revoked(TP(p.topic, p.partition) for p in partitions)

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.journal.lost(TP(p.topic, p.partition) for p in partitions)

    def _commit_or_tell(self) -> None:
        try:
            self.commit()
        except ClientError as error:
            self.journal.failed(error)

    def poll(self, timeout: float) -> None:
        for number in range(AT_MOST):
            message = self._consumer.poll(0 if number else timeout)
            if message is None:
                return
            error = message.error()
            if error is not None:
                if error.code() in PASSING:
                    return
                raise client_error(error)
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            self.journal.read([Read(topic, partition, offset, int(message.value() or b"-1"))])

    def commit(self, offsets: dict[TP, tuple[int, str]] | None = None) -> None:
        given = {}
        if offsets is not None:
            given["offsets"] = [TopicPartition(*tp, offset, text) for tp, (offset, text) in offsets.items()]
        try:
            with translated():
                committed = self._consumer.commit(asynchronous=False, **given)
        except ClientError as error:
            if "_NO_OFFSET" in str(error):  # nothing was read since the last commit
                return
            raise
        for each in committed or ():
            if each.error is not None:
                raise client_error(each.error)

    def committed(self, partition: TP) -> int | None:
        with translated():
            (found,) = self._consumer.committed([TopicPartition(*partition)], timeout=REQUEST_TIMEOUT)
        if found.error is not None:
            raise client_error(found.error)
        return int(found.offset) if found.offset >= 0 else None

    def assignment(self) -> frozenset[TP]:
        with translated():
            return frozenset(TP(p.topic, p.partition) for p in self._consumer.assignment())

    def seek(self, partition: TP, offset: int) -> None:
        with translated():
            self._consumer.seek(TopicPartition(*partition, offset))

    def close(self) -> None:
        self._consumer.close()


class ConsumerProtocolDriver(ConfluentDriver):
    """The broker assigns, and configures sessions and heartbeats."""

    def _protocol(self) -> dict[str, Any]:
        assignor = {"range": "range", "roundrobin": "uniform", "cooperative-sticky": "uniform"}
        return {
            "group.protocol": "consumer",
            "group.remote.assignor": assignor[self.options.assignor],
            "max.poll.interval.ms": 30_000,
        }
