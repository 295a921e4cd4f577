"""What can go wrong in a producer without any broker saying so. Each is a timeout of Kafka's, as in the Java client."""

from __future__ import annotations

from ottla.errors import RequestTimedOut


class BufferExhausted(RequestTimedOut):
    """No memory became free within max.block.ms."""


class MetadataTimeout(RequestTimedOut):
    """Nothing was learned of a topic within max.block.ms."""


class DeliveryTimeout(RequestTimedOut):
    """The record was not acknowledged within delivery.timeout.ms."""
