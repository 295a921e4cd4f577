"""Protobuf schemas: read .proto texts, print them in one form, and decide whether one reads what another wrote."""
