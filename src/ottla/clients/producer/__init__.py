"""The producer: a shared core, and the asyncio and the blocking client on top of it."""
