"""Clients of a schema registry: requests, the frame of values, and serializers for Avro, JSON Schema and Protobuf."""
