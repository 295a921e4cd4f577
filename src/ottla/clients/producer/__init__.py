"""The producer: an asyncio core, with an asyncio and a blocking face over it."""
