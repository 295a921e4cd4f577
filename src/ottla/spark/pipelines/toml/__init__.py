"""Read pipelines from TOML."""
