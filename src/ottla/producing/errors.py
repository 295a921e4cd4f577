"""Errors of a producer that no broker reports. The timeouts have Kafka's error code, as in the Java client."""

from __future__ import annotations

from ottla.errors import KafkaError, RequestTimedOut


class BufferExhausted(RequestTimedOut):
    """No memory became free within max.block.ms."""


class MetadataTimeout(RequestTimedOut):
    """The metadata of a topic did not arrive within max.block.ms."""


class DeliveryTimeout(RequestTimedOut):
    """The record was not acknowledged within delivery.timeout.ms."""


class TransactionTimeout(RequestTimedOut):
    """A coordinator did not do its part of a transaction within max.block.ms."""

    remedy = "retry"


class TransactionAborted(KafkaError):
    """The record was not sent, because its transaction was aborted."""

    default_message = "the record was not sent: its transaction was aborted"
