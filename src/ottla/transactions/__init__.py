"""The transaction coordinator: a pure state machine with the contract of ``ottla.machine``."""
