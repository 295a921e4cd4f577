"""What speaks the protocol as a client: metadata, routing to leaders, produce, fetch, administration."""
