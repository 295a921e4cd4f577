"""The consumer: shared parts, the asyncio and the blocking client on top of them, and dead letters."""
