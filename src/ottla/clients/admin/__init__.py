"""The admin client: topics, configs, groups, offsets and brokers, asyncio and blocking."""
