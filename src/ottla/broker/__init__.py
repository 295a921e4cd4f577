"""The broker: logs, metadata and connections. ``handlers/`` has one file per API."""
