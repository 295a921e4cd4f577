"""Audit the sinks of a declared pipeline: `ottla pipeline audit`."""
