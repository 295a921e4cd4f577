"""Send two trades, the first of an old program that does not know the venue."""

from datetime import UTC, datetime
from pathlib import Path

import ottla
from ottla.serializers import RegistryAvroSerializer

REGISTRY = "http://127.0.0.1:8081"
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
old, new = (RegistryAvroSerializer(REGISTRY, Path(f"trade-v{version}.avsc").read_text()) for version in (1, 2))

with ottla.Producer(bootstrap_servers="localhost:9092") as producer:
    trade = {"symbol": "ABC", "price": 10.0, "quantity": 5, "at": AT}
    producer.send("trades", old.serialize("trades", trade))
    producer.send("trades", new.serialize("trades", {**trade, "price": 11.0, "venue": "XETR"}))
    producer.send("trades", b"not Avro")
