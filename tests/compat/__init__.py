"""Scenarios that other people's clients must see through against any Kafka-compatible broker. See README.md here."""
