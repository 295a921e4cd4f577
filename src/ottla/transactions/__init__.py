"""The transaction coordinator: pure, a machine after the contract of ``ottla.machine``."""
