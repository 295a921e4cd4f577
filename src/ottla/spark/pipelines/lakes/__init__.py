"""Sinks for Delta and Iceberg tables, without jars: tasks write files, and the driver commits them once per batch."""
