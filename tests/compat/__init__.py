"""Scenarios for other client libraries, against any Kafka-compatible broker. See README.md in this folder."""
