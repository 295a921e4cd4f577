"""Who a client is: SaslHandshake, SaslAuthenticate and what each SASL mechanism says inside them.

`listener.py` puts an authenticator in front of every new connection of a SASL listener. `authenticator.py` speaks with
one client. Each mechanism has its file, and only knows the messages of its conversation.
"""
