"""Benchmarks of ottla and Apache Kafka on the same machine. See `python -m benchmarks.broker --help`."""
