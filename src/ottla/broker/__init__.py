"""The broker: logs, metadata and connections put together. ``handlers/`` has one file an API."""
