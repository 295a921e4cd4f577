"""The client libraries under test, each behind the interface in `base`. To add one, add a file and a line here."""

from __future__ import annotations

from .aio import Aiokafka
from .base import Client
from .confluent import Confluent
from .kafka_python import KafkaPython

CLIENTS: dict[str, type[Client]] = {"confluent": Confluent, "kafka_python": KafkaPython, "aiokafka": Aiokafka}
