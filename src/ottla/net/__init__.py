"""Sockets: connections that speak in frames, with flow control and zero copy. Knows no API."""
