"""The sink for database tables: each micro-batch exactly once, and with keys an upsert."""
