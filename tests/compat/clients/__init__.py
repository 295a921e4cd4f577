"""The client libraries under test, each behind the face of `base`. A further one is one more file and line here."""

from __future__ import annotations

from .aio import Aiokafka
from .base import Client
from .confluent import Confluent
from .kafka_python import KafkaPython

CLIENTS: dict[str, type[Client]] = {
    "confluent": Confluent,
    "kafka_python": KafkaPython,
    "aiokafka": Aiokafka,
}
