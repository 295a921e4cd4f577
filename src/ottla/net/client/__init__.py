"""The client's side of a connection: connect, TLS and SASL, requests matched to responses."""
