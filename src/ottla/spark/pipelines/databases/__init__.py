"""The sinks for Postgres, SQLite and DuckDB, without jars: Arrow data through ADBC drivers and DuckDB's package."""
