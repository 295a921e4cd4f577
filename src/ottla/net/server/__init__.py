"""The broker's side of a connection: accept, receive requests, send responses."""
