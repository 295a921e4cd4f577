"""What a producer decides, without I/O: partitioning, batching, memory, order, retries and sequence numbers."""
