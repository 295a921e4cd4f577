"""What a producer decides: partitioning, batching, memory, order, retries, sequence numbers. Pure."""
