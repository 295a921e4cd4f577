"""The last steps before records reach the user, on the user's thread: deserializers and interceptors.

A record that cannot be deserialized stops the consumer: the records before it are handed out, and every later poll
raises `DeserializationError` until the user seeks past it. An interceptor that raises is logged and skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.clients.consumer.core import log
from ottla.clients.serializers import deserializer
from ottla.config.consumer import ConsumerConfig
from ottla.consuming.values import ConsumerRecord, ConsumerRecords, OffsetAndMetadata
from ottla.errors import OttlaError
from ottla.runtime.plugins import instance
from ottla.types import TopicPartition


class DeserializationError(OttlaError):
    """The key or value of a record cannot be deserialized; seek past it to continue without it."""

    def __init__(self, message: str, record: ConsumerRecord) -> None:
        super().__init__(message)
        self.record = record
        """With key and value as bytes."""
        self.topic_partition = TopicPartition(record.topic, record.partition)
        self.offset = record.offset


class Finisher:
    """Turns what was taken from the buffer into what the user sees."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._key = deserializer(config.key_deserializer, "key.deserializer")
        self._value = deserializer(config.value_deserializer, "value.deserializer")
        self._interceptors: Sequence[Any] = [instance(one, "interceptor.classes") for one in config.interceptor_classes]

    @property
    def intercepts(self) -> bool:
        return bool(self._interceptors)

    def finish(self, records: list[ConsumerRecord]) -> tuple[ConsumerRecords, list[ConsumerRecord]]:
        """Return the records for the user, and the rest from the first that cannot be deserialized."""
        leftover: list[ConsumerRecord] = []
        if self._key is not None or self._value is not None:
            good = self._deserialized(records)
            records, leftover = records[:good], records[good:]
        found = ConsumerRecords(records)
        for interceptor in self._interceptors:
            try:
                found = ConsumerRecords(interceptor.on_consume(found))
            except Exception:
                log.exception("the interceptor %r raised in on_consume", interceptor)
        return found, leftover

    def _deserialized(self, records: list[ConsumerRecord]) -> int:
        """Deserialize in place; returns how many succeeded. Raises if the first one fails."""
        of_key, of_value = self._key, self._value
        for number, record in enumerate(records):
            key, value = record.key, record.value
            try:
                if of_key is not None and key is not None:
                    key = of_key(record.topic, key)
                if of_value is not None and value is not None:
                    value = of_value(record.topic, value)
            except Exception as error:
                if number:
                    return number
                raise DeserializationError(
                    f"the record at offset {record.offset} of partition {record.topic}-{record.partition} cannot be "
                    f"deserialized ({type(error).__name__}: {error}): poll again to try it again, or seek to "
                    f"{record.offset + 1} to skip it",
                    record,
                ) from error
            record.key, record.value = key, value
        return len(records)

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_commit(offsets)
            except Exception:
                log.exception("the interceptor %r raised in on_commit", interceptor)

    def close(self) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.close()
            except Exception:
                log.exception("the interceptor %r raised in close", interceptor)
