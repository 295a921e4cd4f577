"""JSON Schema: read schemas, print them in one form, and decide whether one accepts what another accepted."""
