"""Kafka's messages as values: which APIs exist, and their bytes in every version. Pure."""
