"""The consumer: an asyncio core, with an asyncio and a blocking face over it; dead letters."""
