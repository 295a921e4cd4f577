"""The kinds of members: a library and, for librdkafka, its protocol."""

from __future__ import annotations

from collections.abc import Callable

from ..members import Driver, Journal, Options
from .aio import AiokafkaDriver
from .confluent import ConfluentDriver, ConsumerProtocolDriver
from .kafka_python import KafkaPythonDriver

CONSUMER_PROTOCOL = "confluent_kip848"
DRIVERS: dict[str, Callable[[Options, Journal], Driver]] = {
    "confluent": ConfluentDriver,
    CONSUMER_PROTOCOL: ConsumerProtocolDriver,
    "kafka_python": KafkaPythonDriver,
    "aiokafka": AiokafkaDriver,
}
CLASSIC = ("confluent", "kafka_python", "aiokafka")
ALL = tuple(DRIVERS)
