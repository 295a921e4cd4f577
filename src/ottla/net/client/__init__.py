"""The client's side of a connection. Nothing here is used by the server.

A connection is a channel of layers; each knows only the one below it:

    connection.py  requests and responses, matched by correlation id
    sasl.py        authentication: SaslHandshake and SaslAuthenticate, the first requests on the connection
    frames.py      the byte stream cut into frames by their 4-byte sizes
    tls.py         the SSLContext of a configuration, and what failed handshakes mean
    transport.py   name look-up, TCP connection, TLS handshake

security.py chooses the layers by ``security.protocol``; errors.py explains what went wrong.
"""
