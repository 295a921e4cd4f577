"""Avro schemas: read them, print them in one form, and decide whether one reads what another wrote."""
